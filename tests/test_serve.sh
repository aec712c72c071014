#!/bin/sh
# A server from outside: its answers, its refusals, and a short load of many clients at once, in which every answer
# must be that of the request alone. Without libmicrohttpd this is skipped (77). script/test-long has the long load.
# Tier: slow.
set -eu
program=$1
source=$2
. "$source/tests/scratch.sh"
if "$program" doctor --json | grep -q '"libmicrohttpd": ""'; then
    "$program" serve "$source/tests/golden/checkpoints/gpt2" 2>&1 | grep -q libmicrohttpd || fail "it does not say why"
    echo "SKIPPED: no libmicrohttpd in this build" >&2
    exit 77
fi
export PYTHONPATH="$source/tests" PYTHONDONTWRITEBYTECODE=1
python3 "$source/tests/serve_check.py" "$program" "$source" || fail "what a server answers"
python3 "$source/tests/serve_load.py" "$program" "$source/tests/golden/checkpoints/llama-llama3-sharded" \
    clients=12 requests=150 >load.log 2>&1 || { tail -n 5 load.log >&2; fail "the load"; }
# models and settings that cannot be served: a sentence, and exit code 2
for words in "t5" "longformer-mlm" "gpt2 host=0.0.0.0" "gpt2 chunk=1" "gpt2 unheard=1" "gpt2 studies=nowhere"; do
    code=0
    # shellcheck disable=SC2086
    "$program" serve "$source/tests/golden/checkpoints/"$words >out.log 2>err.log || code=$?
    [ "$code" = 2 ] && [ -s err.log ] && [ ! -s out.log ] || fail "serve $words ends with $code"
done
# a port that another program has
python3 - "$program" "$source/tests/golden/checkpoints/gpt2" <<'P' || fail "a port that is taken"
import socket, subprocess, sys
with socket.socket() as other:
    other.bind(("127.0.0.1", 0))
    other.listen()
    port = other.getsockname()[1]
    end = subprocess.run([sys.argv[1], "serve", sys.argv[2], "port=%d" % port], capture_output=True, text=True, timeout=60)
sys.exit(not (end.returncode == 4 and "port %d: where it is taken, choose another port=" % port in end.stderr))
P
exit $((failures > 0))
