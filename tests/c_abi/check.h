/* What the C tests need: checks that say what was expected, and where. */
#ifndef CISTERN_TESTS_C_ABI_CHECK_H_
#define CISTERN_TESTS_C_ABI_CHECK_H_

#include <cistern/cistern.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                      \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      fprintf(stderr, "%s:%d: not so: %s (message: \"%s\")\n", __FILE__, __LINE__, #condition, \
              cistern_last_message());                                                         \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

#define EXPECT_CODE(want, call)                                                          \
  do {                                                                                   \
    const cistern_code got_ = (call);                                                    \
    if (got_ != (want)) {                                                                \
      fprintf(stderr, "%s:%d: %s: %s and not %s: %s\n", __FILE__, __LINE__, #call,       \
              cistern_code_name(got_), cistern_code_name(want), cistern_last_message()); \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

#define EXPECT_OK(call) EXPECT_CODE(CISTERN_OK, call)

#endif /* CISTERN_TESTS_C_ABI_CHECK_H_ */
