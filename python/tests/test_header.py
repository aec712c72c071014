"""The declarations of longshot/_c.py are those of the installed header."""
import ctypes
import re
import unittest

from fixture import ROOT
from longshot import _c

HEADER = ROOT / "include" / "longshot" / "longshot.h"
OBJECTS = {"engine", "model", "tokenizer", "stream"}
PLAIN = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "int32_t": ctypes.c_int32,
         "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
         "double": ctypes.c_double, "void": None}


def kind_of(text):
    """The ctypes type of a C type: base name and stars."""
    stars = text.count("*")
    words = [w for w in text.replace("*", " ").split() if w not in ("const", "struct")]
    base = words[0]
    short = base.removeprefix("longshot_")
    if stars == 0:
        return PLAIN[base] if base in PLAIN else getattr(_c, short)
    if base == "char":
        return ctypes.c_char_p if stars == 1 else ctypes.POINTER(ctypes.c_char_p)
    if base == "void" or short in OBJECTS and base != short:
        return ctypes.c_void_p if stars == 1 else ctypes.POINTER(ctypes.c_void_p)
    if base == "float":
        return ctypes.POINTER(ctypes.c_float)
    return ctypes.POINTER(PLAIN[base] if base in PLAIN else getattr(_c, short))


# buffers and texts that the caller frees are addresses, not Python's bytes
SAME = {(ctypes.c_void_p, ctypes.c_char_p),
        (ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_char_p))}


class Header(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
        cls.functions = re.findall(r"LS_API\s+([\w\s]+?[\s*]+)(longshot_\w+)\(([^)]*)\);", text)
        cls.structs = re.findall(r"typedef struct longshot_(\w+) \{(.*?)\}", text, re.S)
        cls.callbacks = re.findall(r"typedef (\w+ \*?)\(\*longshot_(\w+)\)\(([^)]*)\);", text)

    def same(self, ours, theirs, where):
        self.assertTrue(ours == theirs or (ours, theirs) in SAME, f"{where}: {ours}, {theirs}")

    def arguments(self, text):
        if text.strip() == "void":
            return []
        return [kind_of(re.sub(r"\w+\s*$", "", one)) for one in text.split(",")]

    def test_functions(self):
        names = {name for _, name, _ in self.functions}
        self.assertGreater(len(names), 40)
        self.assertEqual(names, set(_c.FUNCTIONS) | _c.UNUSED)
        for result, name, arguments in self.functions:
            if name in _c.UNUSED:
                continue
            ours = _c.FUNCTIONS[name]
            self.same(ours[0], kind_of(result), name)
            theirs = self.arguments(arguments)
            self.assertEqual(len(ours[1]), len(theirs), name)
            for mine, other in zip(ours[1], theirs):
                self.same(mine, other, name)

    def test_structs(self):
        self.assertGreater(len(self.structs), 10)
        for name, body in self.structs:
            theirs = []
            for line in body.split(";"):
                if not line.strip():
                    continue
                first, *more = (part.strip() for part in line.split(","))
                kind, member = re.match(r"(.*?)(\w+)$", first, re.S).groups()
                if "settings" in member:
                    theirs.append((member, ctypes.POINTER(ctypes.c_char_p)))
                    continue
                theirs += [(m, kind_of(kind)) for m in (member, *more)]
            ours = getattr(_c, name)._fields_
            self.assertEqual([m for m, _ in ours], [m for m, _ in theirs], name)
            for (member, mine), (_, other) in zip(ours, theirs):
                self.same(mine, other, f"{name}.{member}")

    def test_callbacks(self):
        self.assertGreater(len(self.callbacks), 6)
        for result, name, arguments in self.callbacks:
            if name == "token_fn":  # of longshot_generate
                continue
            ours = getattr(_c, name)
            self.same(ours._restype_, kind_of(result), name)
            theirs = self.arguments(arguments)
            self.assertEqual(len(ours._argtypes_), len(theirs), name)
            for mine, other in zip(ours._argtypes_, theirs):
                self.same(mine, other, name)


if __name__ == "__main__":
    unittest.main()
