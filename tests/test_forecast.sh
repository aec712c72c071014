# Tier: slow
# The table of docs/scaling.md is what script/forecast makes of the program's own counts: the rows of one
# model.
set -eu
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
program=$(realpath "$1")
cd "$2"
script/forecast "$program" --check 354M
