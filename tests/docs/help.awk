# The examples in a help text, one per line: "Label: COMMAND" or an indented COMMAND with `quintet` in it.
function emit(text) {
  sub(/^ +/, "", text)
  sub(/^[A-Z][A-Za-z0-9 ,]*: +/, "", text)
  print text
}
kept != "" {
  sub(/^ +/, "")
  text = kept $0
  kept = ""
  emit(text)
  next
}
/^Usage:/ { next }
/^( +|[A-Z][A-Za-z0-9 ,]*: +)((echo|zcat|srun) .*)?quintet [a-z]/ {
  if ($0 ~ /\\$/) {
    kept = substr($0, 1, length($0) - 1)
    next
  }
  emit($0)
}
