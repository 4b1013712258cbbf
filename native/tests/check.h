// SPDX-License-Identifier: Apache-2.0
// A test executable in one header: TEST registers a case, CHECK* report file:line and fail it.
//
//   #include "check.h"
//   TEST(sum_of_two) { CHECK_EQ(1 + 1, 2); }
//   CHECK_MAIN()
//
// main runs every case (or those whose name contains argv[1]) and returns 1 if any check failed.
// A failed check does not leave its case, so one run shows every failure; past kMaxReports they are
// only counted. Not for use from several threads at once.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace octavo::check {

struct Case {
  const char* name;
  void (*run)();
};

struct State {
  std::vector<Case> cases;
  long checks = 0;
  long failures = 0;
};

inline State& state() {
  static State instance;
  return instance;
}

struct Registrar {
  Registrar(const char* name, void (*run)()) { state().cases.push_back({name, run}); }
};

constexpr long kMaxReports = 20;

inline void report(bool ok, const char* file, int line, const std::string& what) {
  State& s = state();
  ++s.checks;
  if (ok) return;
  if (++s.failures <= kMaxReports) std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

template <typename A, typename B>
void equal(const A& a, const B& b, const char* file, int line, const char* text) {
  if (a == b) return report(true, file, line, "");
  std::ostringstream message;
  message.precision(9);
  message << text << ": " << a << " is not " << b;
  report(false, file, line, message.str());
}

inline void near(double a, double b, double tolerance, const char* file, int line,
                 const char* text) {
  // Written so that a NaN on either side fails.
  if (std::fabs(a - b) <= tolerance) return report(true, file, line, "");
  std::ostringstream message;
  message.precision(12);
  message << text << ": " << a << " is " << std::fabs(a - b) << " from " << b << ", more than "
          << tolerance;
  report(false, file, line, message.str());
}

inline int run_all(int argc, char** argv) {
  State& s = state();
  size_t ran = 0;
  for (const Case& c : s.cases) {
    if (argc > 1 && std::strstr(c.name, argv[1]) == nullptr) continue;
    const long before = s.failures;
    try {
      c.run();
    } catch (const std::exception& error) {
      report(false, c.name, 0, std::string("threw ") + error.what());
    }
    ++ran;
    std::printf("%s %s\n", s.failures == before ? "ok  " : "FAIL", c.name);
  }
  std::printf("%zu cases, %ld checks, %ld failures\n", ran, s.checks, s.failures);
  return s.failures == 0 && ran > 0 ? 0 : 1;
}

}  // namespace octavo::check

#define TEST(name)                                                                            \
  static void octavo_test_##name();                                                           \
  static const ::octavo::check::Registrar octavo_registrar_##name(#name, octavo_test_##name); \
  static void octavo_test_##name()

#define CHECK(condition) \
  ::octavo::check::report(static_cast<bool>(condition), __FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b) ::octavo::check::equal((a), (b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_NEAR(a, b, tolerance) \
  ::octavo::check::near((a), (b), (tolerance), __FILE__, __LINE__, #a " ~ " #b)
#define CHECK_THROWS(expression, exception)                                                       \
  do {                                                                                            \
    bool octavo_threw = false;                                                                    \
    try {                                                                                         \
      (void)(expression);                                                                         \
    } catch (const exception&) {                                                                  \
      octavo_threw = true;                                                                        \
    }                                                                                             \
    ::octavo::check::report(octavo_threw, __FILE__, __LINE__, #expression " throws " #exception); \
  } while (false)
#define CHECK_MAIN() \
  int main(int argc, char** argv) { return ::octavo::check::run_all(argc, argv); }
