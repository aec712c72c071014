# Reads every #include and fails on an arrow that points the wrong way.
set -eu
cd "$2/src"
failed=0
allow() { # room, rooms it may see
    room=$1; shift
    for file in $(find "$room" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'); do
        for seen in $(sed -n 's/^#include "\([a-z_]*\)\/.*"/\1/p' "$file" | sort -u); do
            case " $room $* " in
                *" $seen "*) ;;
                *) echo "$file may not include from $seen"; failed=1;;
            esac
        done
    done
}
allow base
allow tensor base
allow data base
allow task base
allow report base
allow position base tensor
allow mixer base tensor position
allow model base tensor position mixer
allow ranks base
allow train base ranks tensor position mixer model data task
allow eval base ranks tensor position mixer model data task train
allow bench base ranks tensor mixer model train report
allow study base ranks tensor position mixer model data task train eval suite report
allow suite base ranks tensor position mixer model data task train
allow reach base tensor position mixer model data task train eval suite report
allow compare base tensor position mixer model data task suite
allow api base tensor position mixer model data task train eval study suite compare longshot
allow serve base tensor position mixer model data train api
allow cli base ranks tensor position mixer model data task train eval report bench study suite reach compare api serve longshot
rooms=$(ls -d */ | tr -d / | sort | tr '\n' ' ')
for room in $rooms; do
    grep -q "^allow $room" "$2/tests/test_includes.sh" || { echo "room $room has no rule"; failed=1; }
done
exit $failed
