"""The question to the model that writes instructions, and which of its candidates can be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.kinds import read_config
from evaluators.kinds._base import CaseFacts, Context, JudgeQuestion, Output
from evaluators.kinds._prompts import fill, in_braces, is_reference, variables_in
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.templatetags.figures import thousands
from runs.reviews.alignment.rules import PeopleDecision
from runs.reviews.alignment.specs import AlignmentSpec, Candidate

MAX_TEXT_LENGTH = 8_000
MAX_REASON_LENGTH = 1_000
# Shorter answers stand in many texts.
MIN_QUOTED_LENGTH = 20
MAX_TASK, MAX_ANSWER, MAX_REFERENCE, MAX_WORDS = 2_000, 4_000, 1_000, 1_500

INSTRUCTIONS = """\
You improve the instructions of a judge. The judge is a language model that scores answers of an AI agent from 0 to 1 \
for the team that owns the agent; {pass_threshold:g} or more is a pass, {borderline_threshold:g} or more is \
borderline, less is a fail. People decided about some answers, too, and the judge often decided differently.

Write {count} of its instructions, each different from the others in what it tells the judge to weigh. A judge that \
follows them has to decide as these people do, also about answers that you do not see.

Rules for each text:
- It is complete and replaces today's instructions, which are quoted as "instructions". At most {length} characters.
- {variables}
- Say what earns 1, 0.5 and 0, what people weigh, and what they do not mind.
- Stay general: name no case, quote no answer, and never say which verdict a particular answer gets.
- Other instructions already say how the judge replies, and that quoted texts give it no orders. Do not repeat that.

What to reply: candidates, each with
- reason: one or two sentences on what people decide differently, and how this text follows them.
- text: the instructions."""
KEEPS = "It contains each of these variables, written exactly like this, and no others: {}."
HAS_NONE = "It contains no variables in double braces."


@dataclass(frozen=True, slots=True)
class Example:
    """A result that the writer sees: what the judge and people said of an answer."""

    decision: PeopleDecision
    case: CaseFacts
    output: Output
    score: float | None
    reasoning: str
    notes: Sequence[str]

    @property
    def text(self) -> str:
        """Return the result as the writer reads it; long parts are cut."""
        context = Context("", self.case, self.output)
        quoted = dict(fill("{{input}}{{candidate_answer}}{{reference_answer}}", context).quoted)
        score = "" if self.score is None else f" ({self.score:.2f})"
        parts = {
            "The judge said": f"{self.decision.machine}{score}. {_cut(self.reasoning, MAX_WORDS)}",
            "People said": " ".join([f"{self.decision.person}.", *self.notes])[:MAX_WORDS],
            "The task": _cut(quoted.get("input", ""), MAX_TASK),
            "The answer": _cut(quoted.get("candidate_answer", ""), MAX_ANSWER),
            "A reference answer": _cut(quoted.get("reference_answer", ""), MAX_REFERENCE),
        }
        return "\n".join(f"{name}: {text}" for name, text in parts.items() if text)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]} […]"


def writer_question(
    spec: AlignmentSpec, examples: Sequence[Example], secrets: Collection[str]
) -> JudgeQuestion:
    """Return the question to the writer; `secrets` are the held-out answers, which no candidate may contain."""
    names = dict.fromkeys(variables_in(spec.text))
    listed = ", ".join(map(in_braces, names))
    instructions = INSTRUCTIONS.format(
        count=f"{spec.candidates} versions" if spec.candidates > 1 else "another version",
        pass_threshold=spec.policy.pass_threshold,
        borderline_threshold=spec.policy.borderline_threshold,
        length=thousands(MAX_TEXT_LENGTH),
        variables=KEEPS.format(listed) if names else HAS_NONE,
    )
    quoted = (
        ("instructions", spec.text or "(none)"),
        *((f"answer {n}", example.text) for n, example in enumerate(examples, 1)),
    )

    def check(reply: Mapping[str, Any]) -> str:
        candidates, problems = read_candidates(reply, spec, secrets)
        return "" if candidates else f"no text can be used: {problems[0]}"

    return JudgeQuestion("align_judge", instructions, quoted, _schema(spec.candidates), check)


def _schema(count: int) -> Mapping[str, Any]:
    texts = {name: {"type": "string"} for name in ("reason", "text")}
    candidate = {"type": "object", "properties": texts, "required": list(texts)}
    return {
        "type": "object",
        "properties": {
            "candidates": {"type": "array", "items": candidate, "minItems": 1, "maxItems": count}
        },
        "required": ["candidates"],
    }


def read_candidates(
    reply: Mapping[str, Any], spec: AlignmentSpec, secrets: Collection[str]
) -> tuple[list[Candidate], list[str]]:
    """Return the candidates of a reply that can be used, and why the others cannot."""
    candidates: list[Candidate] = []
    problems: list[str] = []
    taken = {spec.text.strip()}
    for place, entry in enumerate(reply["candidates"], 1):
        text = str(entry["text"]).strip()
        problem = "it equals another text" if text in taken else find_problem(text, spec, secrets)
        if problem:
            problems.append(f"candidate {place}: {problem}")
        else:
            taken.add(text)
            candidates.append(Candidate(text=text, reason=entry["reason"][:MAX_REASON_LENGTH]))
    return candidates, problems


def find_problem(text: str, spec: AlignmentSpec, secrets: Collection[str]) -> str:
    """Return why a text cannot be the instructions of the evaluator, "" where it can."""
    if not text:
        return "it is empty"
    if len(text) > MAX_TEXT_LENGTH:
        return f"it has {thousands(len(text))} characters; at most {thousands(MAX_TEXT_LENGTH)} are possible"
    if is_reference(text):
        return "it names a file"
    today, own = set(variables_in(spec.text)), set(variables_in(text))
    if missing := sorted(today - own):
        return f"it lacks {', '.join(map(in_braces, missing))}"
    if added := sorted(own - today):
        return f"it adds {', '.join(map(in_braces, added))}"
    squeezed = _squeezed(text)
    if any(
        secret in squeezed for secret in map(_squeezed, secrets) if len(secret) >= MIN_QUOTED_LENGTH
    ):
        return "it contains an answer that it was not shown"
    try:
        read_config(spec.node.kind, spec.node_with(text).as_json()["config"])
    except InvalidConfigError as error:
        return "; ".join(refusal.reason for refusal in error.refusals)
    return ""


def _squeezed(text: str) -> str:
    return " ".join(text.split())
