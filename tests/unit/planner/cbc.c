/* Runs `cbc FILE solve` and reads the objective value that it prints. */
#include "cbc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double cbc_value(const char *lp_path)
{
    char command[512], line[512];
    double value = (double)NAN;

    if (system("command -v cbc >/dev/null 2>&1") != 0) {
        return value;
    }
    snprintf(command, sizeof command, "cbc %s solve 2>/dev/null </dev/null",
             lp_path);
    FILE *f = popen(command, "r");

    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "Objective value:");

        if (at) {
            value = strtod(at + strlen("Objective value:"), NULL);
        }
    }
    if (f) {
        pclose(f);
    }
    return value;
}
