// Which sanitizer a test runs under, for those that do less under it.
#pragma once

namespace quintet {

// ThreadSanitizer makes everything ten to fifty times slower and finds nothing in what one thread
// computes: tests keep their threads under it and cut the arithmetic.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace quintet
