# Sourced by quickstart.sh and check.sh: Debian packages, installed when missing.

# What building and running needs; why each: docs/dependencies.md.
MW_RUN_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config git ca-certificates
    libfyaml-dev libjansson-dev libcsv-dev libsmartcols-dev libglpk-dev
    libopenmpi-dev openmpi-bin libopenblas-serial-dev gnuplot-nox)
MW_TEST_PACKAGES=(libcmocka-dev coinor-cbc python3)

mw_jobs() { nproc; }

mw_as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "need root or sudo for: $*" >&2
        return 4
    fi
}

# mw_install_packages NAME...: asks apt only for those that are not there.
mw_install_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null |
            grep -q 'install ok installed' || missing+=("$name")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "nothing to install"
        return 0
    fi
    echo "installing with apt: ${missing[*]}"
    mw_as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    mw_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "${missing[@]}" >/dev/null
}
