/* SPDX-License-Identifier: Apache-2.0
 *
 * gpushare.h as a program in C uses it: `api_probe COUNT` announces so many iterations and prints
 * what each call returned, and what is known then. It is also compiled as C++. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intercept/api/gpushare.h"

static void report(const char* who) {
  struct gpushare_iterations known = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  struct gpushare_share share = {{0}, 0, 0, 0, 0};
  const int iterations = gpushare_read_iterations(&known), gpu = gpushare_read_share(0, &share);
  printf("%s %d source %u begun %d ended %d phase %u slo %u, %d %s %u %u %u, %d\n", who, iterations,
         known.source, (int)known.begun, (int)known.ended, known.phase, known.slo_us, gpu, share.gpu,
         share.sms, share.sms_entitled, share.sms_in_use, gpushare_read_share(99, &share));
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  struct gpushare_iteration one = GPUSHARE_ITERATION;
  int i, begin = 0, end = 0, arrive = 0, child;
  errno = 77;
  printf("unbegun %d null %d phase %d slo %d expect %d\n", gpushare_end(&one), gpushare_begin(0, 0),
         gpushare_begin(&one, 3), gpushare_set_slo(2000), gpushare_expect(1000));
  for (i = 0; i < count; ++i) {
    arrive |= gpushare_arrive(&one);
    begin |= gpushare_begin(&one, GPUSHARE_DECODE);
    end |= gpushare_end(&one);
  }
  printf("arrive %d begin %d end %d errno %d\n", arrive, begin, end, errno);
  report("parent");
  fflush(stdout);
  child = fork();
  if (child == 0) {
    gpushare_begin(&one, GPUSHARE_PREFILL);
    report("child");
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, &i, 0);
  report("parent");
  return 0;
}
