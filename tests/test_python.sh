#!/bin/sh
# The Python package on the library of this build: python/tests. LONGSHOT_PYTHON names a python
# other than python3; without numpy there is nothing to test.
set -eu
build=$(cd "$(dirname "$1")" && pwd)
python=${LONGSHOT_PYTHON:-python3}
"$python" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || {
    echo "no $python of 3.10 or later with numpy"
    exit 77
}
[ -e "$build/liblongshot.so" ] || { echo "no shared library in $build"; exit 77; }
if grep -q '^LONGSHOT_SANITIZE:STRING=..*' "$build/CMakeCache.txt"; then
    echo "a sanitizer's library must be loaded before python"
    exit 77
fi
export LONGSHOT_LIBRARY="$build/liblongshot.so" LONGSHOT_PROGRAM="$build/longshot"
export PYTHONPATH="$2/python" PYTHONDONTWRITEBYTECODE=1 GOMP_SPINCOUNT=100
exec "$python" -W error -m unittest discover -s "$2/python/tests" -t "$2/python/tests"
