/* The text of a page: see page.h. */
#include "plots/page_int.h"

#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;color:#1d2126;background:#fff;"
    "max-width:1240px;margin:2em auto;padding:0 1em}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.8em}"
    "table{border-collapse:collapse;margin:.6em 0;font-size:13px}"
    "th{text-align:left;border-bottom:1px solid #888;padding:.2em .8em .2em 0}"
    "td{border-bottom:1px solid #e4e6e9;padding:.15em .8em .15em 0;"
    "vertical-align:top}"
    ".r{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{font-size:12px;overflow-x:auto;background:#f5f6f8;padding:.7em}"
    "svg{max-width:100%;height:auto;font:11px system-ui,sans-serif}"
    "summary{cursor:pointer;color:#2f6fd0}"
    ".t{max-width:100%;overflow-x:auto}";

void mw_page_escape(struct mw_str *out, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        switch (c) {
        case '&':
            mw_str_add(out, "&amp;");
            break;
        case '<':
            mw_str_add(out, "&lt;");
            break;
        case '>':
            mw_str_add(out, "&gt;");
            break;
        case '"':
            mw_str_add(out, "&quot;");
            break;
        case '\'':
            mw_str_add(out, "&#39;");
            break;
        default:
            mw_str_addf(out, "%c",
                        c >= 0x20 || c == '\n' || c == '\t' ? c : ' ');
        }
    }
}

__attribute__((format(printf, 2, 0))) static void
add_format(struct mw_page *page, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    MW_ASSERT(n >= 0, "format %s", fmt);
    char *text = mw_calloc((size_t)n + 1, 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    mw_page_escape(&page->html, text);
    mw_free(text);
}

void mw_page_begin(struct mw_page *page, const char *title)
{
    mw_str_add(&page->html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
                            "<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                            "content=\"width=device-width\">\n<title>");
    mw_page_escape(&page->html, title);
    mw_str_addf(&page->html, "</title>\n<style>%s</style>\n</head>\n<body>\n",
                style);
    mw_str_add(&page->html, "<h1>");
    mw_page_escape(&page->html, title);
    mw_str_add(&page->html, "</h1>\n");
}

void mw_page_heading(struct mw_page *page, const char *text)
{
    mw_str_add(&page->html, "<h2>");
    mw_page_escape(&page->html, text);
    mw_str_add(&page->html, "</h2>\n");
}

void mw_page_text(struct mw_page *page, const char *fmt, ...)
{
    va_list args;
    mw_str_add(&page->html, "<p>");
    va_start(args, fmt);
    add_format(page, fmt, args);
    va_end(args);
    mw_str_add(&page->html, "</p>\n");
}

void mw_page_verbatim(struct mw_page *page, const char *text)
{
    mw_str_add(&page->html, "<pre>");
    mw_page_escape(&page->html, text);
    mw_str_add(&page->html, "</pre>\n");
}

/* ---- tables ----------------------------------------------------------------
 */
/* Alignment is the column's, named by its place in the table. */
void mw_page_table_begin(struct mw_page *page, const char *const *columns,
                         size_t n)
{
    int id = page->n_pictures++;
    mw_str_add(&page->html, "<style>");
    for (size_t i = 0; i < n; i++) {
        if (columns[i][0] == '>') {
            mw_str_addf(&page->html,
                        "#t%d td:nth-child(%zu),#t%d th:nth-child(%zu)"
                        "{text-align:right;font-variant-numeric:tabular-nums}",
                        id, i + 1, id, i + 1);
        }
    }
    mw_str_addf(&page->html,
                "</style>\n<div class=\"t\"><table id=\"t%d\"><tr>", id);
    for (size_t i = 0; i < n; i++) {
        mw_str_add(&page->html, "<th>");
        mw_page_escape(&page->html, columns[i] + (columns[i][0] == '>'));
        mw_str_add(&page->html, "</th>");
    }
}

void mw_page_table_row(struct mw_page *page)
{
    mw_str_add(&page->html, "</tr>\n<tr>");
}

void mw_page_table_cell(struct mw_page *page, const char *fmt, ...)
{
    va_list args;
    mw_str_add(&page->html, "<td>");
    va_start(args, fmt);
    add_format(page, fmt, args);
    va_end(args);
    mw_str_add(&page->html, "</td>");
}

void mw_page_table_end(struct mw_page *page)
{
    mw_str_add(&page->html, "</tr></table></div>\n");
}

void mw_page_fold_begin(struct mw_page *page, const char *summary)
{
    mw_str_add(&page->html, "<details><summary>");
    mw_page_escape(&page->html, summary);
    mw_str_add(&page->html, "</summary>\n");
}

void mw_page_fold_end(struct mw_page *page)
{
    mw_str_add(&page->html, "</details>\n");
}

/* ---- files -----------------------------------------------------------------
 */
enum mw_status mw_page_save(struct mw_page *page, const char *path,
                            struct mw_err *err)
{
    struct mw_outfile out = {0};
    mw_str_add(&page->html, "</body>\n</html>\n");
    enum mw_status status = mw_outfile_open(&out, path, err);
    if (status == MW_OK) {
        fwrite(page->html.s, 1, page->html.n, out.f);
        status = mw_outfile_commit(&out, err);
    }
    mw_page_release(page);
    return status;
}

void mw_page_release(struct mw_page *page)
{
    mw_str_release(&page->html);
}

const char *mw_page_value(double v, enum mw_plot_format format,
                          char buf[MW_FMT_MAX])
{
    switch (format) {
    case MW_PLOT_SECONDS:
        return mw_fmt_seconds(v, buf);
    case MW_PLOT_BYTES:
        return mw_fmt_bytes(v, buf);
    case MW_PLOT_BYTES_PER_S:
        return mw_fmt_rate(v, buf);
    case MW_PLOT_NUMBER:
        break;
    }
    snprintf(buf, MW_FMT_MAX, "%.4g", v);
    return buf;
}
