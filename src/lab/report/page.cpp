#include "lab/report/page.h"

#include <fmt/format.h>

#include "base/philox.h"
#include "lab/plot/markup.h"

namespace quintet {

Page::Page(std::string title, std::string subtitle)
    : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void Page::section(const std::string& heading) {
  body_ += fmt::format("<h2>{}</h2>\n", escape_markup(heading));
}

void Page::subsection(const std::string& heading) {
  body_ += fmt::format("<h3>{}</h3>\n", escape_markup(heading));
}

void Page::paragraph(const std::string& text) {
  body_ += fmt::format("<p>{}</p>\n", escape_markup(text));
}

void Page::answer(const std::vector<std::string>& sentences) {
  body_ += "<div class=\"answer\">\n";
  for (const std::string& sentence : sentences) paragraph(sentence);
  body_ += "</div>\n";
}

void Page::list(const std::vector<std::string>& items) {
  body_ += "<ul>\n";
  for (const std::string& item : items) {
    body_ += fmt::format("<li>{}</li>\n", escape_markup(item));
  }
  body_ += "</ul>\n";
}

void Page::code(const std::string& text) {
  body_ += fmt::format("<pre tabindex=\"0\">{}</pre>\n", escape_markup(text));
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<dl class=\"facts\">\n";
  for (const auto& [name, value] : facts) {
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_markup(name),
                         escape_markup(value));
  }
  body_ += "</dl>\n";
}

void Page::table(const PageTable& table, const std::string& folded) {
  if (!folded.empty()) {
    body_ += fmt::format("<details><summary>{}</summary>\n", escape_markup(folded));
  }
  body_ += "<div class=\"scroll\" tabindex=\"0\"><table class=\"sortable\"><thead><tr>";
  for (const auto& column : table.columns) {
    body_ += fmt::format("<th scope=\"col\"{}>{}</th>", column.numeric ? " class=\"n\"" : "",
                         escape_markup(column.name));
  }
  body_ += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    body_ += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const PageCell& cell = row[c];
      const bool numeric = c < table.columns.size() && table.columns[c].numeric;
      body_ += fmt::format(
          "<td{}{}>{}</td>", numeric ? " class=\"n\"" : "",
          std::isfinite(cell.value) ? fmt::format(" data-v=\"{:.9g}\"", cell.value) : "",
          cell.code ? "<code>" + escape_markup(cell.text) + "</code>" : escape_markup(cell.text));
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
  if (!folded.empty()) body_ += "</details>\n";
}

void Page::figure_of(const std::string& heading, const std::string& caption,
                     const std::string& narrow, const std::string& wide) {
  body_ += fmt::format(
      "<figure><h3>{}</h3>\n<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>\n"
      "{}</figure>\n",
      escape_markup(heading), wide, narrow,
      caption.empty() ? "" : "<figcaption>" + escape_markup(caption) + "</figcaption>");
}

std::string Page::finish() const {
  // Only our script runs, and nothing is ever fetched: the browser is told so. The number that lets
  // the script in depends on the page, so that no text in it can know it.
  const std::string nonce = fmt::format("{:016x}", stream_of(title_ + body_));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'nonce-{nonce}'; script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{title}</title>\n<style nonce=\"{nonce}\">\n{style}</style>\n</head>\n<body>\n"
      "<header><h1>{title}</h1>\n<p class=\"sub\">{subtitle}</p></header>\n<main>\n{body}</main>\n"
      "<footer>Made by quintet. Everything on this page is in this file.</footer>\n"
      "<script nonce=\"{nonce}\">\n{script}</script>\n</body>\n</html>\n",
      fmt::arg("nonce", nonce), fmt::arg("title", escape_markup(title_)),
      fmt::arg("subtitle", escape_markup(subtitle_)), fmt::arg("style", kPageStyle),
      fmt::arg("body", body_), fmt::arg("script", kPageScript));
}

}  // namespace quintet
