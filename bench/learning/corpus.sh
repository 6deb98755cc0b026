#!/usr/bin/env bash
# Real text in some twenty languages, from the documentation that Debian packages carry, as a corpus to learn from:
#
#   bench/learning/corpus.sh FOLDER        FOLDER/text/LANGUAGE/*.txt, FOLDER/words.model, FOLDER/corpus
#
# Packages are downloaded and unpacked, not installed. QUINTET: the binary (default build/quintet).
set -euo pipefail
quintet=$(realpath "${QUINTET:-$(dirname "$0")/../../build/quintet}")
mkdir -p "${1:?a folder}"
cd "$1"
for package in installation-guide-amd64 debian-handbook; do
  [ -e unpacked/$package ] && continue
  [ -e "$(echo ${package}_*.deb)" ] || apt-get download -q $package
  mkdir -p unpacked && dpkg -x ${package}_*.deb unpacked/$package
done
python3 - <<'PYTHON'
import glob, gzip, html.parser, os, re

class Text(html.parser.HTMLParser):
    """The paragraphs of a page, a line each."""
    BREAKS = {"p", "li", "h1", "h2", "h3", "h4", "h5", "dt", "dd", "td", "div", "tr", "title"}
    SKIPPED = {"script", "style", "pre", "head"}
    def __init__(self):
        super().__init__()
        self.lines, self.line, self.skipped = [], [], 0
    def end_line(self):
        text = re.sub(r"\s+", " ", "".join(self.line)).strip()
        if len(text) >= 40:
            self.lines.append(text)
        self.line = []
    def handle_starttag(self, tag, attrs):
        self.skipped += tag in self.SKIPPED
        if tag in self.BREAKS:
            self.end_line()
    def handle_endtag(self, tag):
        self.skipped -= tag in self.SKIPPED
        if tag in self.BREAKS:
            self.end_line()
    def handle_data(self, data):
        if not self.skipped:
            self.line.append(data)

pages = {}
for path in glob.glob("unpacked/**/*.html*", recursive=True):
    if os.path.islink(path):
        continue
    name = re.search(r"/(?:html/)?([a-z]{2}(?:[_-][A-Z]{2})?)/[^/]*$", path) or re.search(r"\.([a-z]{2}(?:_[A-Z]{2})?)\.html", path)
    if not name:
        continue
    parser = Text()
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as page:
        parser.feed(page.read())
    parser.end_line()
    code = name.group(1).replace("-", "_")
    pages.setdefault(code if code[:2] == "zh" else code[:2], []).append("\n".join(parser.lines))
for language, texts in sorted(pages.items()):
    os.makedirs(f"text/{language}", exist_ok=True)
    with open(f"text/{language}/pages.txt", "w") as out:
        out.write("\n".join(dict.fromkeys("\n".join(texts).split("\n"))) + "\n")
PYTHON
du -sh text/* | sort -h | tail -30
[ -e words.model ] || "$quintet" tokenizer train --out words.model --vocabulary 16000 text
"$quintet" data build --tokenizer words.model --out corpus --language-by directory --held-out 0.02 text
