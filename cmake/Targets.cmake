# Targets for people: format, format-check, check-headers, lint, coverage.
file(GLOB_RECURSE all_code CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
    base/*.[ch] hwdb/*.[ch] sim/*.[ch] planner/*.[ch] plots/*.[ch]
    kernels/*.[ch] exec/*.[ch] cli/*.[ch] bench/*.[ch] tests/*.[ch])

find_program(CLANG_FORMAT NAMES clang-format clang-format-14)
if(CLANG_FORMAT)
    add_custom_target(format COMMAND ${CLANG_FORMAT} -i ${all_code}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
    add_custom_target(format-check
        COMMAND ${CLANG_FORMAT} --dry-run --Werror ${all_code}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
endif()

# Every public header compiles alone, and twice in a row.
set(header_units)
foreach(header IN LISTS all_code)
    if(header MATCHES "\\.h$" AND NOT header MATCHES "^tests/|_int\\.h$|^kernels/cuda/|^exec/")
        string(REPLACE "/" "_" unit ${header})
        set(unit ${PROJECT_BINARY_DIR}/gen/headers/${unit}.c)
        file(CONFIGURE OUTPUT ${unit} CONTENT
            "#include \"${header}\"\n#include \"${header}\"\nextern int mw_unit_is_not_empty;\n")
        list(APPEND header_units ${unit})
    endif()
endforeach()
add_library(check-headers OBJECT EXCLUDE_FROM_ALL ${header_units})
target_link_libraries(check-headers PRIVATE mw_flags PkgConfig::JANSSON)

find_program(CLANG_TIDY NAMES clang-tidy clang-tidy-14)
if(CLANG_TIDY)
    set(lint_code ${all_code})
    list(FILTER lint_code INCLUDE REGEX "^(base|hwdb|sim|planner|plots|cli)/.*\\.c$")
    add_custom_target(lint
        COMMAND ${CLANG_TIDY} --quiet -p ${PROJECT_BINARY_DIR} ${lint_code}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
endif()

find_program(GCOVR gcovr)
if(MW_COVERAGE AND GCOVR)
    add_custom_target(coverage
        COMMAND ${GCOVR} -r ${PROJECT_SOURCE_DIR} --exclude tests --print-summary
        WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM)
endif()
