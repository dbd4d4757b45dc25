#!/bin/sh
# A greeting, a signature, and no more than eighty words: 0 to 100.
score=0
said=""
case $EVAL_OUTPUT in
  Hello* | Dear* | Hi*) score=$((score + 40)) ;;
  *) said="no greeting; " ;;
esac
if printf '%s\n' "$EVAL_OUTPUT" | tail -n 3 | grep -q Tarnwick; then
  score=$((score + 30))
else
  said="${said}no signature; "
fi
words=$(printf '%s' "$EVAL_OUTPUT" | wc -w)
if [ "$words" -le 80 ]; then score=$((score + 30)); else said="${said}$((words + 0)) words; "; fi
printf '{"score": %d, "reasoning": "%s%d words."}\n' "$score" "$said" "$words"
