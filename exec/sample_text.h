/* The text that the executor trains on when no other is given: about four
 * thousand bytes of plain English, written for this program. */
#ifndef MW_EXEC_SAMPLE_TEXT_H
#define MW_EXEC_SAMPLE_TEXT_H

extern const char mw_sample_text[];

#endif
