/* CBC as a second solver of programs in CPLEX LP form, where it is installed.
 */
#ifndef MW_TESTS_CBC_H
#define MW_TESTS_CBC_H

/* Optimal value of the program in a file; NaN without cbc. */
double cbc_value(const char *lp_path);

#endif
