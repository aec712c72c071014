#!/bin/sh
# CUDA code that differs by architecture is seen by the build (cmake/cuda.cmake): it is in the two headers that a
# file names to be compiled for each by itself. Elsewhere 9.0 runs what was made for 8.0.
set -eu
source=$2
cd "$source/src/tensor"
found=$(grep -rlE '__CUDA_ARCH|griddepcontrol|wgmma|NV_IF_TARGET|NV_IF_ELSE_TARGET' . | sort)
for file in $found; do
    case $file in
        ./cuda/follow.cuh | ./cuda/hopper.cuh) ;;
        *) grep -qE '#include "tensor/(cuda/(follow|hopper)|op/attention/hopper_attention_parts)\.cuh"' "$file" ||
            { echo "FAILED: $file has code for one architecture and includes neither follow.cuh nor hopper.cuh" >&2; exit 1; };;
    esac
done
[ "$(echo "$found" | grep -c 'follow.cuh\|hopper.cuh')" -eq 2 ] || { echo "FAILED: where is the code that differs?" >&2; exit 1; }
