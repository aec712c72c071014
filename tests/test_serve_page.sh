#!/bin/sh
# The page of a server, drawn by a browser: the tokens of a prompt with the losses that the server
# gives, the curve of the run, its evaluations, and a study's page. Without Chromium or libmicrohttpd this is skipped (77).
# Tier: slow.
set -eu
program=$1
source=$2
. "$source/tests/scratch.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -z "$browser" ] || "$program" doctor --json | grep -q '"libmicrohttpd": ""'; then
    echo "SKIPPED: no Chromium, or no libmicrohttpd in this build" >&2
    exit 77
fi
write_text 300
"$program" train out=run data.corpus=text.txt data.tokenizer=byte model.layers=1 model.width=16 mixer.heads=2 \
    model.length=64 train.length=64 train.batch=2 train.steps=6 train.warmup=1 threads=1 --quiet >/dev/null
"$program" eval run data.corpus=text.txt eval.lengths=64,128 eval.tokens=256 threads=1 --quiet >/dev/null
cat >study.yaml <<'Y'
title: two small arms
seeds: [1]
model: {layers: 1, width: 16, length: 32}
mixer: {heads: 2}
data: {corpus: text.txt, tokenizer: byte}
train: {steps: 4, batch: 2, warmup: 1}
eval: {lengths: [32], tokens: 64}
arms:
  rope: {model.position: rope}
  alibi: {model.position: alibi}
Y
"$program" study study.yaml out=study threads=1 --quiet >/dev/null
"$program" serve run studies=. port=0 threads=1 --quiet >address &
server=$!
trap 'kill "$server" 2>/dev/null || :; rm -rf "$scratch"' EXIT
for wait in 1 2 3 4 5 6 7 8 9 10; do
    [ -s address ] && break
    sleep 0.5
done
address=$(cat address)
browse() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/profile" \
        --virtual-time-budget=5000 "$@" 2>browser.log || { tail -n 5 browser.log >&2; fail "the browser failed"; }
    if grep -i "uncaught\|syntaxerror" browser.log; then fail "script errors"; fi
}
browse --window-size=390,900 --dump-dom "$address/#go" >page.dom
python3 "$source/tests/serve_page.py" page.dom "$address" run || fail "what the page shows"
for scheme in light dark; do
    browse --window-size=390,900 --blink-settings=preferredColorScheme=$([ $scheme = dark ] && echo 0 || echo 1) \
        --screenshot="$scratch/$scheme.png" "$address/#go" >/dev/null
    [ "$(stat -c %s $scheme.png)" -gt 10000 ] || fail "the picture ($scheme) is empty"
done
cmp -s light.png dark.png && fail "dark and light look the same"
kill -TERM "$server"
wait "$server" || fail "the server ended with $?"
exit $((failures > 0))
