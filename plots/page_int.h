/* Private to pages: text into HTML, numbers into labels. */
#ifndef MW_PLOTS_PAGE_INT_H
#define MW_PLOTS_PAGE_INT_H

#include "plots/page.h"

/* Appends text with the five special characters escaped; other control
 * characters than line breaks and tabs become spaces. */
void mw_page_escape(struct mw_str *out, const char *text);
/* A value in its unit, as axes show it, into buf. */
const char *mw_page_value(double v, enum mw_plot_format format,
                          char buf[MW_FMT_MAX]);

#endif
