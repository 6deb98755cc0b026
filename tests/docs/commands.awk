# The commands that a Markdown page shows, one per line: its line number, why it is not run ("-": it is), the command,
# with tabs between. Commands are what is in fenced blocks without a language, and indented lines that begin like one of
# ours. A block is not run where a comment before it says so: <!-- not run: REASON -->. After <!-- whole, says: WORDS -->
# its runs keep their length ("whole" in place of "-"), and its last command must print the words: "says WORDS" follows.
function emit(text) {
  sub(/ +# .*$/, "", text)
  if (text !~ /^[ \t]*(#|$)/) printf "%d\t%s\t%s\n", first, why, text
}
function collect(text) {
  sub(/^[ \t]+/, "", text)
  if (kept == "") first = FNR
  if (text ~ /\\$/) {
    kept = kept substr(text, 1, length(text) - 1)
    return
  }
  emit(kept text)
  kept = ""
}
BEGIN { why = "-" }
/^ *<!-- not run: .* -->$/ {
  why = $0
  sub(/^ *<!-- not run: /, "", why)
  sub(/ -->$/, "", why)
  next
}
/^ *<!-- whole, says: .* -->$/ {
  why = "whole"
  says = $0
  sub(/^ *<!-- whole, says: /, "", says)
  sub(/ -->$/, "", says)
  next
}
/^ *```/ {
  language = $0
  sub(/^ *```/, "", language)
  if (inside) {
    if (kept != "") collect("")
    if (says != "") printf "%d\tsays\t%s\n", FNR, says
    why = "-"
    says = ""
  }
  inside = !inside
  commands = inside && language == ""
  next
}
commands { collect($0); next }
inside { next }
kept != "" { collect($0); next }
/^    +(build\/)?(quintet|bench\/[a-z\/_.]+) [a-z]/ || /^    +make [a-z]/ { collect($0); next }
/^[^ ]/ { why = "-" }
