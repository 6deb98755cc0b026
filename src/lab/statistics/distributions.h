// The distributions that intervals and tests need: Student's t and Fisher's F.
#pragma once

namespace quintet {

// The regularized incomplete beta function I_x(a, b), for a, b > 0 and 0 <= x <= 1.
double incomplete_beta(double a, double b, double x);

// How likely |t| is to exceed this by chance, with `freedom` degrees of freedom (> 0).
double student_two_sided(double t, double freedom);
// What |t| stays below with this probability: student_limit(0.95, 10) is 2.228.
double student_limit(double probability, double freedom);

// How likely F is to exceed this by chance.
double fisher_tail(double f, double freedom_above, double freedom_below);

}  // namespace quintet
