#!/bin/sh
# CUDA code that differs by architecture is seen by the build (cmake/cuda.cmake): it is in the three headers that a
# file names to be compiled for each by itself. Elsewhere 9.0 runs what was made for 8.0.
set -eu
source=$2
cd "$source/src/tensor"
found=$(grep -rlE '__CUDA_ARCH|griddepcontrol|wgmma|NV_IF_TARGET|NV_IF_ELSE_TARGET' . | sort)
for file in $found; do
    case $file in
        ./cuda/follow.cuh | ./cuda/fp8.cuh | ./cuda/hopper.cuh) ;;
        *) grep -qE '#include "tensor/(cuda/(follow|fp8|hopper)|op/attention/hopper_attention_parts)\.cuh"' "$file" ||
            { echo "FAILED: $file has code for one architecture and includes none of follow.cuh, fp8.cuh and hopper.cuh" >&2; exit 1; };;
    esac
done
[ "$(echo "$found" | grep -c 'follow.cuh\|fp8.cuh\|hopper.cuh')" -eq 3 ] || { echo "FAILED: where is the code that differs?" >&2; exit 1; }
