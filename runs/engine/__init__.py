"""One execution, pure of Django: the target answers, evaluators score, the rules decide."""
