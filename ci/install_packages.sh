# Installs Debian packages where they are missing and we may:  install_packages WHO-NEEDS-THEM PACKAGE...
# Where we may not, it says what to install, and the tests that need them say that they did not run.
install_packages() {
    local who=$1 package missing=()
    for package in "${@:2}"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "$who: sudo apt-get install ${missing[*]}" >&2
        return
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
}
