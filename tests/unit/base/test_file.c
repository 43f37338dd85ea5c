/*
 * Files: reading with limits, writing without leaving parts behind.
 */
#include "base/file.h"
#include "base/mem.h"
#include "mw_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every test runs in a new folder of its own. */
static int enter_folder(void **state)
{
    char name[] = "mw_file_XXXXXX";
    char *made = mkdtemp(name);
    if (made == NULL || chdir(made) != 0) {
        return -1;
    }
    *state = mw_strdup(made);
    return 0;
}

static int leave_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    int rc = chdir("..") == 0 ? system(command) : -1;
    mw_free(*state);
    return rc;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void assert_content(const char *path, const char *text)
{
    char *got = NULL;
    size_t len = 0;
    assert_int_equal(mw_file_read(path, 1 << 20, &got, &len, NULL), MW_OK);
    assert_string_equal(got, text);
    assert_int_equal(len, strlen(text));
    mw_free(got);
}

static int count_entries(void)
{
    DIR *d = opendir(".");
    int n = 0;
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n - 2;
}

static void reads_the_whole_file(void **state)
{
    (void)state;
    put("a", "line\nno newline at the end");
    assert_content("a", "line\nno newline at the end");
    put("empty", "");
    assert_content("empty", "");
}

static void reads_more_than_one_block(void **state)
{
    (void)state;
    struct mw_str text = {0};
    for (int i = 0; i < 50000; i++) {
        mw_str_addf(&text, "%d\n", i);
    }
    put("a", text.s);
    assert_content("a", text.s);
    mw_str_release(&text);
}

static void limit_is_inclusive(void **state)
{
    (void)state;
    char *got = NULL;
    size_t len = 0;
    struct mw_err err = {0};
    put("a", "12345");
    assert_int_equal(mw_file_read("a", 5, &got, &len, NULL), MW_OK);
    mw_free(got);
    got = NULL;
    assert_int_equal(mw_file_read("a", 4, &got, &len, &err), MW_EINPUT);
    assert_string_equal(err.text, "a: is 5 B; a file may have at most 4 B");
    assert_null(got);
}

/* A sparse file of 1 GiB takes no space and must be refused unread. */
static void huge_file_is_refused(void **state)
{
    (void)state;
    char *got = NULL;
    size_t len = 0;
    struct mw_err err = {0};
    put("a", "x");
    assert_int_equal(truncate("a", 1 << 30), 0);
    assert_int_equal(
        mw_file_read_as("a", "YAML file", 16 << 20, &got, &len, &err),
        MW_EINPUT);
    assert_string_equal(err.text,
                        "a: is 1.00 GiB; a YAML file may have at most 16 MiB");
}

static void unreadable_things_are_named(void **state)
{
    (void)state;
    char *got = NULL;
    size_t len = 0;
    struct mw_err err = {0};
    assert_int_equal(mw_file_read("none", 9, &got, &len, &err), MW_EINPUT);
    assert_string_equal(err.text,
                        "none: cannot read: no such file or directory");
    mw_err_clear(&err);
    assert_int_equal(mw_file_read(".", 9, &got, &len, &err), MW_EINPUT);
    assert_string_equal(err.text, ".: is a directory; a file is needed");
    mw_err_clear(&err);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(mw_file_read("pipe", 9, &got, &len, &err), MW_EINPUT);
    assert_string_equal(err.text,
                        "pipe: is not a regular file; a file is needed");
    mw_err_clear(&err);
    put("plain", "");
    assert_int_equal(mw_file_read("plain/x", 9, &got, &len, &err), MW_EINPUT);
    assert_string_equal(err.text, "plain/x: cannot read: a part of the path "
                                  "is not a directory");
}

static void commit_replaces_whole(void **state)
{
    (void)state;
    struct mw_outfile o;
    put("a", "old");
    assert_int_equal(mw_outfile_open(&o, "a", NULL), MW_OK);
    fputs("new", o.f);
    fflush(o.f);
    assert_content("a", "old"); /* not before the commit */
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    assert_content("a", "new");
    assert_int_equal(count_entries(), 1);
    mw_outfile_abort(&o); /* safe after a commit */
    assert_content("a", "new");
}

/* A check leaves nothing behind, nor changes what is there. */
static void check_leaves_nothing(void **state)
{
    (void)state;
    struct mw_err err = {0};

    assert_int_equal(mw_outfile_check(NULL, &err), MW_OK);
    assert_int_equal(mw_outfile_check("-", &err), MW_OK);
    assert_int_equal(mw_outfile_check("/dev/null", &err), MW_OK);
    assert_int_equal(mw_outfile_check("new", &err), MW_OK);
    assert_int_equal(count_entries(), 0);
    assert_int_equal(mkdir("d", 0777), 0);
    assert_int_equal(mw_outfile_check("d", &err), MW_EINPUT);
    assert_int_equal(mw_outfile_check("none/new", &err), MW_EINPUT);
    assert_int_equal(rmdir("d"), 0); /* is empty */
}

static void abort_leaves_nothing(void **state)
{
    (void)state;
    struct mw_outfile o = {0};
    mw_outfile_abort(&o);
    assert_int_equal(mw_outfile_open(&o, "a", NULL), MW_OK);
    fputs("half", o.f);
    mw_outfile_abort(&o);
    assert_int_equal(count_entries(), 0);
}

static void two_writers_of_one_name_do_not_mix(void **state)
{
    (void)state;
    struct mw_outfile a, b;
    assert_int_equal(mw_outfile_open(&a, "x", NULL), MW_OK);
    assert_int_equal(mw_outfile_open(&b, "x", NULL), MW_OK);
    fputs("a", a.f);
    fputs("b", b.f);
    assert_int_equal(mw_outfile_commit(&a, NULL), MW_OK);
    assert_int_equal(mw_outfile_commit(&b, NULL), MW_OK);
    assert_content("x", "b");
    assert_int_equal(count_entries(), 1);
}

static void mode_follows_the_umask(void **state)
{
    (void)state;
    struct mw_outfile o;
    struct stat s;
    mode_t before = umask(027);
    assert_int_equal(mw_outfile_open(&o, "a", NULL), MW_OK);
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    umask(before);
    assert_int_equal(stat("a", &s), 0);
    assert_int_equal(s.st_mode & 0777, 0640);
}

static void unwritable_places_are_named(void **state)
{
    (void)state;
    struct mw_outfile o;
    struct mw_err err = {0};
    assert_int_equal(mw_outfile_open(&o, "no/such/a", &err), MW_EINPUT);
    assert_string_equal(err.text,
                        "no/such/a: cannot write: the directory 'no/such' does "
                        "not exist; make it or choose another place");
    mw_err_clear(&err);
    assert_int_equal(mw_outfile_open(&o, ".", &err), MW_EINPUT);
    assert_string_equal(err.text, ".: cannot write: it is a directory; a file "
                                  "name is needed");
    mw_err_clear(&err);
    put("plain", "");
    assert_int_equal(mw_outfile_open(&o, "plain/a", &err), MW_EINPUT);
    assert_string_equal(err.text,
                        "plain/a: cannot write: a part of the path is not a "
                        "directory; choose another place");
    mw_err_clear(&err);
    assert_int_equal(mw_outfile_open(&o, "", &err), MW_EINPUT);
    assert_null(o.f);
    mw_outfile_abort(&o); /* safe after a failed open */
}

/* Renaming onto a device would destroy it, as root. */
static void devices_are_written_directly(void **state)
{
    (void)state;
    struct mw_outfile o;
    struct stat s;
    assert_int_equal(mw_outfile_open(&o, "/dev/null", NULL), MW_OK);
    assert_null(o.tmp_path);
    fputs("x", o.f);
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    assert_int_equal(stat("/dev/null", &s), 0);
    assert_true(S_ISCHR(s.st_mode));
}

static void symbolic_link_stays(void **state)
{
    (void)state;
    struct mw_outfile o;
    struct stat s;
    put("target", "old");
    assert_int_equal(symlink("target", "link"), 0);
    assert_int_equal(mw_outfile_open(&o, "link", NULL), MW_OK);
    fputs("new", o.f);
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    assert_content("target", "new");
    assert_int_equal(lstat("link", &s), 0);
    assert_true(S_ISLNK(s.st_mode));
}

/* /dev/full fails every write with "no space left". */
static void failed_write_is_reported(void **state)
{
    (void)state;
    struct mw_outfile o;
    struct mw_err err = {0};
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    assert_int_equal(mw_outfile_open(&o, "/dev/full", NULL), MW_OK);
    fputs("x", o.f);
    assert_int_equal(mw_outfile_commit(&o, &err), MW_EFAILED);
    assert_string_equal(err.text,
                        "/dev/full: cannot write: no space left on the device");
    assert_null(o.f);
}

/* The target became a directory meanwhile: rename fails, nothing is left. */
static void failed_rename_removes_the_temporary(void **state)
{
    (void)state;
    struct mw_outfile o;
    struct mw_err err = {0};
    assert_int_equal(mw_outfile_open(&o, "a", NULL), MW_OK);
    assert_int_equal(mkdir("a", 0700), 0);
    assert_int_equal(mw_outfile_commit(&o, &err), MW_EFAILED);
    assert_non_null(strstr(err.text, "a: cannot write: "));
    assert_int_equal(count_entries(), 1);
}

static void dash_is_standard_output(void **state)
{
    (void)state;
    struct mw_outfile o;
    assert_int_equal(mw_outfile_open(&o, "-", NULL), MW_OK);
    assert_ptr_equal(o.f, stdout);
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    assert_int_equal(mw_outfile_open(&o, "-", NULL), MW_OK);
    mw_outfile_abort(&o);
    assert_true(fprintf(stdout, "%s", "") == 0); /* still open */
}

static void directories_are_made_with_parents(void **state)
{
    (void)state;
    struct mw_err err = {0};
    assert_int_equal(mw_mkdirs("x/y/z", NULL), MW_OK);
    assert_int_equal(mw_mkdirs("x/y/z/", NULL), MW_OK);
    assert_int_equal(mw_mkdirs("x//y/w", NULL), MW_OK);
    assert_int_equal(mw_mkdirs(".", NULL), MW_OK);
    assert_int_equal(mw_mkdirs("/", NULL), MW_OK);
    assert_true(mw_file_exists("x/y/w"));
    assert_false(mw_file_exists("x/y/v"));
    put("plain", "");
    assert_int_equal(mw_mkdirs("plain/x", &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "plain: cannot make the directory"));
    assert_int_equal(mw_mkdirs("plain", NULL), MW_EINPUT);
}

/* Vectors of the FNV page (isthe.com/chongo/tech/comp/fnv): "" "a" "foobar". */
static void hash_is_fnv_1a(void **state)
{
    (void)state;
    assert_true(mw_hash64(MW_HASH_INIT, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(mw_hash64(MW_HASH_INIT, "a", 1) ==
                UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(mw_hash64(MW_HASH_INIT, "foobar", 6) ==
                UINT64_C(0x85944171f73967e8));
    uint64_t h = mw_hash64(MW_HASH_INIT, "foo", 3);
    assert_true(mw_hash64(h, "bar", 3) == UINT64_C(0x85944171f73967e8));
}

#define FOLDER_TEST(f)                                                         \
    cmocka_unit_test_setup_teardown(f, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(reads_the_whole_file),
        FOLDER_TEST(reads_more_than_one_block),
        FOLDER_TEST(limit_is_inclusive),
        FOLDER_TEST(huge_file_is_refused),
        FOLDER_TEST(unreadable_things_are_named),
        FOLDER_TEST(commit_replaces_whole),
        FOLDER_TEST(abort_leaves_nothing),
        FOLDER_TEST(check_leaves_nothing),
        FOLDER_TEST(two_writers_of_one_name_do_not_mix),
        FOLDER_TEST(mode_follows_the_umask),
        FOLDER_TEST(unwritable_places_are_named),
        FOLDER_TEST(devices_are_written_directly),
        FOLDER_TEST(symbolic_link_stays),
        FOLDER_TEST(failed_write_is_reported),
        FOLDER_TEST(failed_rename_removes_the_temporary),
        FOLDER_TEST(dash_is_standard_output),
        FOLDER_TEST(directories_are_made_with_parents),
        FOLDER_TEST(hash_is_fnv_1a),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
