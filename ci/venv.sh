# Makes .venv with all that the tests need and puts it first on PATH:  source ci/venv.sh EXTRAS
bash ci/system_packages.sh & # beside the Python packages: both wait for downloads
packages=$!
python3 -m venv .venv
export PATH="$PWD/.venv/bin:$PATH"
pip install -q uv
bash ci/fast_install.sh .venv/bin/python -c ci/constraints.txt -e ".[$1]"
wait "$packages"
export RLCONFORM_ARTIFACTS="$PWD/rlconform-artifacts" # screenshots of the pages
