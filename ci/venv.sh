# Makes .venv with all that the tests need and puts it first on PATH:  source ci/venv.sh EXTRAS
bash ci/system_packages.sh
python3 -m venv .venv
.venv/bin/pip install -q --no-compile -c ci/constraints.txt -e ".[$1]"
export PATH="$PWD/.venv/bin:$PATH"
export RLCONFORM_ARTIFACTS="$PWD/rlconform-artifacts" # screenshots of the pages
