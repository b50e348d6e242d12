# What the scripts share; sourced, never run. Callers have set -euo pipefail.

# The root of the repository, whatever the current folder is.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# The commit that stands here, and whether something was changed since: what results name.
commit_here() {
    local commit
    commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
    [[ -z $(git status --porcelain 2>/dev/null) ]] || commit+="+changes"
    printf '%s\n' "$commit"
}

# install_missing COMMAND=PACKAGE...: installs, as root, the Debian packages of those commands
# that are not there. Debian's own signatures and the release's pockets fix what is installed;
# versions are not pinned, because a mirror keeps only the newest of each.
install_missing() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (and no apt-get to install them)"
    [[ $(id -u) == 0 ]] || die "missing: ${missing[*]}; install them, or run this as root"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local options=(-qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
    # A mirror changes between the two, and others may be installing.
    local attempt
    for attempt in 1 2 3 4 5; do
        apt-get "${options[@]}" update >/dev/null &&
            apt-get "${options[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null &&
            return 0
        ((attempt == 5)) || sleep $((attempt * 5))
    done
    die "apt-get could not install ${missing[*]}"
}

# A linker, the C library's start files and certificates: a Rust toolchain needs them and does
# not bring them.
install_compiler() {
    install_missing cc=gcc
    [[ -e /usr/include/stdlib.h ]] || install_missing no-headers=libc6-dev
    # What cargo checks crates.io's certificate against.
    [[ -e /etc/ssl/certs/ca-certificates.crt ]] || install_missing no-certificates=ca-certificates
}

# The Rust toolchain, which the user brings.
require_rust() {
    command -v cargo >/dev/null || PATH=$HOME/.cargo/bin:$PATH
    command -v cargo >/dev/null || die "no cargo: install a Rust toolchain (1.95 or newer) first"
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$(rustc --version | cut -d' ' -f2)
    [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -1) == "$wanted" ]] ||
        die "Rust $found is too old: $wanted or newer is needed"
}

# What ranks of MPI need: the launcher, the library, and what its bindings are made with.
install_mpi() {
    install_missing mpirun=openmpi-bin mpicc=libopenmpi-dev
    install_libclang
}

# What reads the C headers of MPI when its bindings are made.
install_libclang() {
    compgen -G "/usr/lib/llvm-*/lib/libclang*.so*" >/dev/null &&
        compgen -G "/usr/lib/llvm-*/lib/clang/*/include/stddef.h" >/dev/null ||
        install_missing no-libclang=libclang-dev
}

# The other implementation of MPI, beside the usual one: mpirun.mpich and mpicc.mpich.
install_mpich() {
    install_missing mpirun.mpich=mpich mpicc.mpich=libmpich-dev
    install_libclang
}

# The programs that tests run, most of them on a mount. Two come from crates.io, once for all clones.
install_programs() {
    install_missing dbench=dbench fio=fio bonnie++=bonnie++ sqlite3=sqlite3 rsync=rsync setfacl=acl setfattr=attr git=git ip=iproute2 script=bsdutils \
        mkfs.ext4=e2fsprogs losetup=mount groff=groff-base
    # Large, and only to check a unit: a test that is passed over without it.
    [[ ${CI:-} != true ]] || install_missing systemd-analyze=systemd
    local tools=${XDG_CACHE_HOME:-$HOME/.cache}/sateen-tools
    [[ -x $tools/bin/fsx ]] || cargo install -q fsx --version 0.3.2 --locked --root "$tools"
    [[ -x $tools/bin/pjdfstest ]] ||
        cargo install -q pjdfstest --version 0.2.2 --locked --root "$tools"
}

require_fuse() {
    [[ $(id -u) == 0 ]] || die "mounting needs root"
    [[ -e /dev/fuse ]] || modprobe fuse 2>/dev/null || true
    [[ -r /dev/fuse && -w /dev/fuse ]] || die "no /dev/fuse: the kernel needs FUSE"
    # The faster transport, where the kernel has it (6.14) and lets us.
    local switch=/sys/module/fuse/parameters/enable_uring
    if [[ -e $switch && $(<"$switch") != Y ]]; then
        (echo Y >"$switch") 2>/dev/null || say "FUSE over io_uring stays switched off ($switch)"
    fi
}

# io500_config DATA RESULTS SECONDS RANKS MIB: a short io500 in DATA with its results in RESULTS,
# on standard output. It writes for that many seconds at a time, and at most MIB each of easy and
# of hard data, and 64 files of each kind for each of them.
io500_config() {
    local data=$1 results=$2 seconds=$3 ranks=$4 mib=$5
    cat "$repo/bench/io500-short.ini"
    printf '\n[%s]\n' global
    # Without folders named by the time: who calls this makes fresh ones.
    printf '%s = %s\n' datadir "$data" timestamp-datadir FALSE resultdir "$results" \
        timestamp-resultdir FALSE
    printf '\n[%s]\n%s = %s\n' debug stonewall-time "$seconds" \
        ior-easy blockSize "$((mib / ranks / 2 * 2 + 2))m" \
        ior-hard segmentCount "$((mib * 22 / ranks + 1))" \
        mdtest-easy n "$((mib * 64 / ranks + 1))" mdtest-hard n "$((mib * 64 / ranks + 1))"
}

# release_folder DIR [PROGRAMS]: ends what still runs on data below DIR, unmounts what is mounted below it,
# and removes it. Touches nothing else: other file systems on this machine are not ours.
release_folder() {
    local dir=$1 programs=${2:-${CARGO_TARGET_DIR:-$repo/target}} point pid
    programs=$(realpath -m "$programs")
    [[ -n $dir && -d $dir ]] || return 0
    cd "$repo"
    # Deepest first. Mount points come with octal escapes.
    while read -r point; do
        umount -f "$point" 2>/dev/null || umount -l "$point" 2>/dev/null || true
    done < <(cut -d' ' -f5 /proc/self/mountinfo | while read -r p; do printf '%b\n' "$p"; done |
        grep -F -- "$dir/" | sort -r)
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        # Only programs that were built here (or lie in PROGRAMS) and were given a path below DIR
        # as an argument.
        [[ $(readlink "/proc/$pid/exe") == "$programs"/* ]] || continue
        if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$dir/"; then
            kill -9 "$pid" 2>/dev/null || true
        fi
    done
    rm -rf --one-file-system -- "$dir"
}
