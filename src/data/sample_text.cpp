#include "data/sample_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "data/tokenizer/utf8.h"

namespace quintet {

// How a language's words are spelled: syllables of an onset, a vowel and perhaps a coda, each a
// list separated by spaces; or, for scripts of many characters, a range of them.
struct SampleText::Script {
  std::string_view language, onsets = {}, vowels = {}, codas = {};
  char32_t first = 0, last = 0;  // characters of a script that is not spelled
  bool spaces = true;            // between words
  bool capitals = false;
  std::string_view comma = ",", stop = ".";
};

namespace {

constexpr std::size_t kSpelled = 1 << 14;  // words kept in memory
// Words up to this rank follow Zipf's law with exponent 1, the rest a steeper one. Both figures are
// such that as many words are new, and repeat, as in technical English.
constexpr double kCore = 8000, kTailShare = 0.11, kTailExponent = 0.85;

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t space = std::min(list.find(' '), list.size());
    parts.emplace_back(list.substr(0, space));
    list.remove_prefix(std::min(space + 1, list.size()));
  }
  return parts;
}

std::uint64_t draw_rank(PhiloxSequence& random) {
  const double u = random.uniform(), v = random.uniform();
  if (u >= kTailShare) return static_cast<std::uint64_t>(std::exp(v * std::log(kCore)));
  const double rank = kCore * std::pow(1 - v, -1 / kTailExponent);
  return static_cast<std::uint64_t>(std::min(rank, 1e15));
}

// Capitals of the scripts above that have them, by the distance between cases.
void capitalize(std::string& text, std::size_t at) {
  if (at >= text.size()) return;
  const Utf8Char c = decode_utf8(text.data() + at, text.data() + text.size());
  char32_t upper = c.code;
  if ((c.code >= U'a' && c.code <= U'z') || (c.code >= 0xE0 && c.code <= 0xFE) ||
      (c.code >= 0x430 && c.code <= 0x44F) || (c.code >= 0x3B1 && c.code <= 0x3C9)) {
    upper -= 0x20;
  } else if (c.code >= 0x450 && c.code <= 0x45F) {
    upper -= 0x50;
  }
  std::string spelled;
  append_utf8(upper, spelled);
  text.replace(at, c.length, spelled);
}

}  // namespace

const SampleText::Script& SampleText::script_of(std::string_view language) {
  static constexpr std::array<Script, 26> kScripts = {{
      {.language = "en",
       .onsets = "b c d f g h j k l m n p r s t v w y th sh ch st tr pr br gr cl pl sp wh qu fr",
       .vowels = "a e i o u ea ou ai ee oo ie",
       .codas = "n s t r l d m ng st nd ck ll rt nt",
       .capitals = true},
      {.language = "de",
       .onsets = "b d f g h k l m n p r s t w z sch st sp br gr kr schl pf tr fr kl",
       .vowels = "a e i o u ä ö ü ei ie au eu",
       .codas = "n r s t l ch cht ng st rt nd mm lt",
       .capitals = true},
      {.language = "fr",
       .onsets = "b c d f g j l m n p r s t v ch br cr pr tr gr pl qu bl",
       .vowels = "a e i o u é è ê ou ai eau oi",
       .codas = "n s t r l nt ns x ment tion lle",
       .capitals = true},
      {.language = "es",
       .onsets = "b c d f g h j l m n p r s t v ll ñ br cr pr tr pl gr qu",
       .vowels = "a e i o u á é í ó ie ue",
       .codas = "n s r l d ción mente",
       .capitals = true},
      {.language = "pl",
       .onsets = "b c d g j k l ł m n p r s t w z ś ć ź ż sz cz rz dz prz",
       .vowels = "a e i o u y ą ę ó ie",
       .codas = "n s t r m ć ł ch sz ny",
       .capitals = true},
      {.language = "tr",
       .onsets = "b c ç d g h k l m n p r s ş t v y z",
       .vowels = "a e ı i o ö u ü",
       .codas = "n r l k m s t ş lar ler",
       .capitals = true},
      {.language = "vi",
       .onsets = "b c d đ g h k l m n ng nh ph qu s t th tr v x ch gi kh",
       .vowels = "a ă â e ê i o ô ơ u ư á à ả ạ ế ề ị ố ộ ờ ữ",
       .codas = "n ng nh m p t c",
       .capitals = true},
      {.language = "fi",
       .onsets = "h j k l m n p r s t v",
       .vowels = "a e i o u ä ö aa ii uu yö ie uo",
       .codas = "n s t l r ssa lla sta nen",
       .capitals = true},
      {.language = "ru",
       .onsets = "б в г д ж з к л м н п р с т ф х ц ч ш пр ст тр кр гр вс",
       .vowels = "а е и о у ы я ю ё",
       .codas = "н т л р с й м в ть ст ый ого",
       .capitals = true},
      {.language = "uk",
       .onsets = "б в г ґ д ж з к л м н п р с т х ц ч ш щ пр",
       .vowels = "а е и і ї о у я ю є",
       .codas = "н т л р с й м ть ння",
       .capitals = true},
      {.language = "el",
       .onsets = "β γ δ ζ θ κ λ μ ν π ρ σ τ φ χ ψ στ πρ τρ",
       .vowels = "α ε η ι ο υ ω ά έ ή ί ό ου αι ει",
       .codas = "ν ς ρ",
       .capitals = true},
      {.language = "ka",
       .onsets = "ბ გ დ ვ ზ თ კ ლ მ ნ პ ჟ რ ს ტ ფ ქ ღ ყ შ ჩ ც ძ წ ჭ ხ ჯ ჰ",
       .vowels = "ა ე ი ო უ",
       .codas = "ს მ ნ რ ლ თ"},
      {.language = "he",
       .onsets = "א ב ג ד ה ו ז ח ט י כ ל מ נ ס ע פ צ ק ר ש ת",
       .vowels = "ו י א ה",
       .codas = "ם ן ת ים ות ה",
       .comma = ","},
      {.language = "ar",
       .onsets = "ب ت ث ج ح خ د ذ ر ز س ش ص ض ط ظ ع غ ف ق ك ل م ن ه و ي ال",
       .vowels = "ا و ي َ ِ ُ",
       .codas = "ة ت ن ات ين ون",
       .comma = "،"},
      {.language = "fa",
       .onsets = "ب پ ت ج چ ح خ د ر ز ژ س ش ص ط ع غ ف ق ک گ ل م ن ه",
       .vowels = "ا و ی",
       .codas = "ن ت ه ها ان",
       .comma = "،"},
      {.language = "hi",
       .onsets = "क ख ग घ च छ ज झ ट ठ ड ढ त थ द ध न प फ ब भ म य र ल व श ष स ह",
       .vowels = "ा ि ी ु ू े ै ो ौ",
       .codas = "ं र न त ों",
       .stop = "।"},
      {.language = "bn",
       .onsets = "ক খ গ ঘ চ ছ জ ট ড ত থ দ ধ ন প ফ ব ভ ম য র ল শ ষ স হ",
       .vowels = "া ি ী ু ে ো",
       .codas = "র ন ং তে",
       .stop = "।"},
      {.language = "ta",
       .onsets = "க ங ச ஞ ட ண த ந ப ம ய ர ல வ ழ ள ற ன",
       .vowels = "ா ி ீ ு ூ ெ ே ை ொ ோ",
       .codas = "் ம் ன் ர் ல்"},
      {.language = "th",
       .onsets = "ก ข ค ง จ ช ซ ด ต ถ ท น บ ป ผ พ ฟ ม ย ร ล ว ส ห อ",
       .vowels = "า ิ ี ึ ื ุ ู ะ ั เ แ โ ไ ่ ้",
       .codas = "น ง ม ก บ ย",
       .spaces = false,
       .comma = " ",
       .stop = " "},
      {.language = "km",
       .onsets = "ក ខ គ ង ច ជ ដ ត ថ ទ ន ប ផ ព ម យ រ ល វ ស ហ អ",
       .vowels = "ា ិ ី ុ ូ េ ែ ោ ៅ ះ",
       .codas = "ន ង ម ក ប",
       .spaces = false,
       .comma = " ",
       .stop = "។"},
      {.language = "am", .first = 0x1200, .last = 0x1357, .comma = "፣", .stop = "።"},
      {.language = "ko", .first = 0xAC00, .last = 0xD7A3},
      {.language = "zh",
       .first = 0x4E00,
       .last = 0x6FFF,
       .spaces = false,
       .comma = "，",
       .stop = "。"},
      {.language = "ja",
       .onsets = "の に は を た が で て と し れ さ あ い う え お か き く け こ す せ そ な ま "
                 "み む も や ゆ よ ら り る コ ン ピ ュ ー タ ス ト リ フ ァ イ ル デ ー サ",
       .vowels = "日 本 人 大 年 会 中 国 長 出 三 時 行 見 月 分 後 前 生 五 間 上 東 四 今 金 九 "
                 "入 学 高 円 子 外 八 六 下 来 気 小 七 山 話 女 北 午 百 書 先 名 川 千 水 半 男 "
                 "西 電 校 語 土 木 聞 食 車 何 南 万 毎 白 天 母 火 右 読 友 左 休 父 雨",
       .codas = "る い く た り の を が は",
       .spaces = false,
       .comma = "、",
       .stop = "。"},
      {.language = "emoji", .first = 0x1F300, .last = 0x1F64F},
      {.language = "code",
       .onsets = "get set is to on add run map key val buf len idx ptr node list init read write",
       .vowels = "_a _ed _or _x er s",
       .codas = "= ( ) { } ; [i] -> :: += 0 1",
       .comma = ";",
       .stop = "}"},
  }};
  const auto found = std::find_if(kScripts.begin(), kScripts.end(),
                                  [&](const Script& s) { return s.language == language; });
  QT_CHECK(found != kScripts.end(), "no sample language \"{}\"", language);
  return *found;
}

std::span<const std::string_view> SampleText::languages() {
  static constexpr std::array<std::string_view, 26> kLanguages = {
      "en", "de", "fr", "es", "pl", "tr", "vi", "fi", "ru", "uk", "el", "ka",    "he",
      "ar", "fa", "hi", "bn", "ta", "th", "km", "am", "ko", "zh", "ja", "emoji", "code"};
  return kLanguages;
}

SampleText::SampleText(std::string_view language)
    : script_(&script_of(language)),
      stream_(stream_of(language)),
      onsets_(split(script_->onsets)),
      vowels_(split(script_->vowels)),
      codas_(split(script_->codas)) {
  for (std::uint64_t rank = 0; rank < kSpelled; ++rank) {
    word_text_ += make_word(rank);
    word_ends_.push_back(static_cast<std::uint32_t>(word_text_.size()));
  }
}

// The word of a rank: common words are short.
std::string SampleText::make_word(std::uint64_t rank) const {
  PhiloxSequence random(rank, stream_);
  const auto any = [&](const std::vector<std::string>& parts) -> const std::string& {
    return parts[random.below(static_cast<std::uint32_t>(parts.size()))];
  };
  const double size = std::log2(static_cast<double>(rank) + 2);
  const auto syllables = 1 + static_cast<int>(size * (0.1 + 0.15 * random.uniform()));
  std::string word;
  for (int i = 0; i < syllables; ++i) {
    if (script_->first != 0) {
      // Few characters of many make up most of a text.
      const auto count = static_cast<double>(script_->last - script_->first + 1);
      const auto step = static_cast<std::uint32_t>(std::exp(random.uniform() * std::log(count)));
      append_utf8(script_->first + step * 7919 % static_cast<std::uint32_t>(count), word);
      continue;
    }
    word += any(onsets_);
    word += any(vowels_);
    if (i + 1 == syllables ? random.below(2) == 0 : random.below(4) == 0) word += any(codas_);
  }
  return word;
}

void SampleText::append_word(std::uint64_t rank, std::string& out) const {
  if (rank >= kSpelled) {
    out += make_word(rank);
    return;
  }
  const std::size_t begin = rank == 0 ? 0 : word_ends_[rank - 1];
  out.append(word_text_, begin, word_ends_[rank] - begin);
}

void SampleText::append_sentence(PhiloxSequence& random, std::string& out) const {
  const std::size_t words = 4 + random.below(20);
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint32_t dice = random.below(1000);
    if (i > 0 && (script_->spaces || dice < 10)) out += ' ';
    if (dice < 25) {
      out += std::to_string(random.below(dice < 5 ? 1000000 : 2030));
      continue;
    }
    if (dice < 30) out += "(";
    const std::size_t begin = out.size();
    append_word(draw_rank(random), out);
    if (script_->capitals && (i == 0 || dice >= 950)) capitalize(out, begin);
    if (dice < 30) out += ")";
    if (dice >= 30 && dice < 34) out += "-" + std::to_string(random.below(100));
    if (dice >= 40 && dice < 110 && i + 1 < words) out += script_->comma;
  }
  out += random.below(12) == 0 ? std::string_view("?") : script_->stop;
}

void SampleText::append_document(std::uint64_t seed, std::uint64_t number, std::size_t bytes,
                                 std::string& out) const {
  PhiloxSequence random(seed, stream_ + number * 0x9E3779B97F4A7C15);
  const std::size_t end = out.size() + bytes;
  append_sentence(random, out);
  while (out.size() < end) {
    if (script_->spaces) out += ' ';
    append_sentence(random, out);
  }
}

}  // namespace quintet
