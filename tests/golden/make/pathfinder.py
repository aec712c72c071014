"""Statistics of images of the public Pathfinder generator: tests/golden/pathfinder.txt, which
tests/test_pathfinder.c reads.

    python3 pathfinder.py draw PUBLIC SIDE IMAGES SEED FILE.npz   runs the public code
    python3 pathfinder.py tell FILE.npz ... >../pathfinder.txt    mean and standard error of what was drawn

PUBLIC is a folder of checkouts, as in common.py; PUBLIC/pathfinder is drewlinsley/pathfinder at its first
commit. That is Python 2 with a SciPy of its time. It runs unchanged: names that NumPy and SciPy dropped are put
back, with what their documentation said of them. Settings are those of the Long Range Arena's
lra_benchmarks/data/pathfinder.py, hard set. Needs numpy, scipy, pillow, opencv-python-headless, matplotlib."""
import contextlib
import os
import random
import sys
import tempfile
import types

import numpy as np

import common

SETTINGS = {  # by pixels a side
    32: dict(paddle_margin_list=[1], paddle_length=2, marker_radius=1.5, paddle_thickness=0.5, seed_distance=7,
             continuity=1.0, num_distractor_snakes=20 // 4, snake_contrast_list=[2], paddle_contrast_list=[0.75]),
    64: dict(paddle_margin_list=[1], paddle_length=5, marker_radius=2.5, paddle_thickness=1, seed_distance=12,
             continuity=1.8, num_distractor_snakes=22 // 4, snake_contrast_list=[0.8], paddle_contrast_list=[1.0]),
    128: dict(paddle_margin_list=[2, 3], paddle_length=5, marker_radius=3, paddle_thickness=1.5, seed_distance=20,
              continuity=1.8, num_distractor_snakes=35 // 4, snake_contrast_list=[0.9], paddle_contrast_list=[1.0]),
}
COMMON = dict(padding=1, antialias_scale=2, contour_length=14, distractor_length=14 // 3, use_single_paddles=False,
              max_target_contour_retrial=4, max_distractor_contour_retrial=4, max_paddle_retrial=2,
              segmentation_task=False, pause_display=False, save_images=True, save_metadata=True, batch_id=0)


# ---- what libraries no longer have ----

def bytescale(data):
    """scipy.misc.bytescale: from the least to the largest value, 0 to 255; bytes as they are."""
    if data.dtype == np.uint8:
        return data
    low, span = data.min(), data.max() - data.min()
    return (((data - low) * (255.0 / (span if span else 1))).clip(0, 255) + 0.5).astype(np.uint8)


def imresize(data, size, interp):
    """scipy.misc.imresize: Pillow's, of bytes."""
    from PIL import Image
    assert interp == "lanczos"
    return np.array(Image.fromarray(bytescale(np.asarray(data))).resize((size[1], size[0]), Image.Resampling.LANCZOS))


def put_back(save):
    import scipy
    misc = types.ModuleType("scipy.misc")
    misc.imresize, misc.imsave = imresize, lambda path, data: save(bytescale(data))
    sys.modules["scipy.misc"] = scipy.misc = misc
    np.float, np.round_ = float, np.round


# ---- drawing ----

def remembered(function):
    """draw_line_n_mask gives the same for the same arguments."""
    known = {}

    def call(size, start, angle, length, thickness, margin, struct, scale, contrast_scale=1.0):
        key = (tuple(size), int(start[0]), int(start[1]), float(angle), margin, contrast_scale)
        if key not in known:
            if len(known) > 40000:
                known.clear()
            known[key] = function(size, start, angle, length, thickness, margin, struct, scale,
                                  contrast_scale=contrast_scale)
            for image in known[key]:
                image.flags.writeable = False
        return known[key]
    return call


def draw(side, count, seed, path):
    """images, labels, dots and the number of distractors that found a place."""
    images, labels, dots, placed = [], [], [], [0]
    put_back(images.append)
    common.public("pathfinder")
    import cv2
    import snakes
    import snakes2
    cv2.setNumThreads(1)
    make_snake, draw_circle, accumulate = snakes.make_snake, snakes2.draw_circle, snakes2.accumulate_meta

    def watched_snake(*given):
        out = make_snake(*given)
        placed[-1] += bool(out[2])
        return out

    def watched_circle(size, at, *given):
        dots.append([int(at[0]), int(at[1])])
        return draw_circle(size, at, *given)

    def watched_label(array, label, *given, **words):
        labels.append(label)
        placed.append(0)
        return accumulate(array, label, *given, **words)

    snakes.make_snake, snakes2.draw_circle, snakes2.accumulate_meta = watched_snake, watched_circle, watched_label
    snakes.draw_line_n_mask = remembered(snakes.draw_line_n_mask)
    np.random.seed(seed)
    random.seed(seed)
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, \
            contextlib.redirect_stdout(nowhere):
        snakes2.from_wrapper(types.SimpleNamespace(contour_path=folder, n_images=count, window_size=[side, side],
                                                   **COMMON, **SETTINGS[side]))
    np.savez_compressed(path, images=np.stack(images), label=labels, tips=np.reshape(dots, (-1, 2, 2)),
                        placed=placed[:-1])


# ---- statistics: tests/test_pathfinder.c has the same ----

def components(image):
    from scipy import ndimage
    return ndimage.label(image >= 64, np.ones((3, 3)))[1]


def statistics(images, label, dots, placed):
    """name: a value of each image"""
    side, x = images.shape[1], images.astype(float)
    apart = np.hypot(dots[:, 0, 0] - dots[:, 1, 0], dots[:, 0, 1] - dots[:, 1, 1])
    out = {"connected": label, "distractors": placed, "without_distractors": placed == 0, "lit": (images > 0).mean((1, 2)),
           "tone": x.mean((1, 2)), "tone_squared": (x * x).mean((1, 2))}
    for least in (32, 64, 96, 128, 160, 192, 224, 255):
        out["tone_from_%d" % least] = (images >= least).mean((1, 2))
    radius = np.hypot(*(np.indices((side, side)) - (side - 1) / 2))
    for i in range(4):
        out["ring_%d" % i] = x[:, (radius >= i * side / 8) & (radius < (i + 1) * side / 8)].mean(1)
        out["rows_%d" % i] = x[:, i * side // 4:(i + 1) * side // 4].mean((1, 2))
        out["columns_%d" % i] = x[:, :, i * side // 4:(i + 1) * side // 4].mean((1, 2))
    for lag in (1, 2, 3, 4, 6):
        out["down_%d" % lag] = (x[:, lag:] * x[:, :-lag]).mean((1, 2))
        out["right_%d" % lag] = (x[:, :, lag:] * x[:, :, :-lag]).mean((1, 2))
    out["components"] = np.array([components(image) for image in images])
    for i, dot in enumerate(("first", "last")):
        out[dot + "_dot_row"], out[dot + "_dot_column"] = dots[:, i, 0], dots[:, i, 1]
        out[dot + "_dot_tone"] = x[np.arange(len(x)), dots[:, i, 0], dots[:, i, 1]]
    out["dots_apart"], out["dots_apart_connected"] = apart, apart * label
    out["tone_connected"] = out["tone"] * label
    return out


def tell(paths):
    parts = [np.load(path) for path in paths]
    for side in sorted({part["images"].shape[1] for part in parts}):
        images, label, dots, placed = (np.concatenate([p[name] for p in parts if p["images"].shape[1] == side])
                                       for name in ("images", "label", "tips", "placed"))
        print("images %d | %d" % (side, len(images)))
        for name, values in statistics(images, label, dots, placed).items():
            print("mean %d | %s | %.9g | %.6g" % (side, name, values.mean(), values.std(ddof=1) / len(values) ** 0.5))


if __name__ == "__main__":
    if len(sys.argv) == 7 and sys.argv[1] == "draw":
        common.PUBLIC = sys.argv[2]
        draw(*map(int, sys.argv[3:6]), sys.argv[6])
    elif len(sys.argv) > 2 and sys.argv[1] == "tell":
        tell(sys.argv[2:])
    else:
        sys.exit(__doc__)
