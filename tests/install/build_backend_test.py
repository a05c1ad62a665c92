"""tools/build_backend/shoal_build.py: which torch `pip install .` builds against, and what the wheel then depends on.

scikit-build-core is a stand-in that notes what it is given, and so is the torch: a folder with a version.py in a made environment.
cmake/TorchWheel.cmake is run with the same stand-ins.
"""

import importlib
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
given = {}
stand_in = types.ModuleType("scikit_build_core.build")
stand_in.build_wheel = lambda folder, settings, metadata: given.update(settings) or "a.whl"
stand_in.build_editable = stand_in.build_wheel
stand_in.get_requires_for_build_wheel = lambda settings: ["ninja"]
package = types.ModuleType("scikit_build_core")
package.build = stand_in
sys.modules.update({"scikit_build_core": package, "scikit_build_core.build": stand_in})
sys.path.insert(0, str(ROOT / "tools/build_backend"))
shoal_build = importlib.import_module("shoal_build")

PYTHON = """#!/bin/sh
[ "$1" = -E ] || exit 1
echo FOLDER/torch/__init__.py
"""


class BuildBackend(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        given.clear()
        self.environment = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.environment)))
        os.environ.pop("SHOAL_TORCH", None)
        os.environ.pop("VIRTUAL_ENV", None)

    def torch(self, version, where="environment"):
        folder = self.folder / where / "torch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(f"from typing import Optional\n\n__version__ = '{version}'\n")
        return folder

    def environment_with(self, version):
        """A Python in VIRTUAL_ENV that knows this torch, as pip and uv have it."""
        folder = self.torch(version)
        python = self.folder / "environment/bin/python"
        python.parent.mkdir()
        python.write_text(PYTHON.replace("FOLDER", str(folder.parent)))
        python.chmod(0o755)
        os.environ["VIRTUAL_ENV"] = str(self.folder / "environment")
        return folder

    def without_torch(self):
        shoal_build_ask, path = shoal_build.ask, list(sys.path)
        shoal_build.ask = lambda python: None
        sys.path[:] = [entry for entry in sys.path if not Path(entry, "torch").exists()]
        self.addCleanup(lambda: (setattr(shoal_build, "ask", shoal_build_ask), sys.path.__setitem__(slice(None), path)))

    def test_the_torch_of_the_environment_is_taken(self):
        folder = self.environment_with("2.13.1+cpu")
        self.assertEqual(shoal_build.find_torch(), folder)
        self.assertEqual(shoal_build.dynamic_metadata("dependencies", {}), ["torch==2.13.*"])
        self.assertEqual(shoal_build.get_requires_for_build_wheel(), ["ninja"])
        self.assertEqual(shoal_build.build_wheel("out", {"cmake.define.SHOAL_CUDA_ARCHITECTURES": "90"}), "a.whl")
        for build in (shoal_build.build_wheel, shoal_build.build_editable):
            given.clear()
            build("out", {"cmake.define.SHOAL_CUDA_ARCHITECTURES": "90"})
            self.assertEqual(given["cmake.define.SHOAL_TORCH_DIR"], str(folder))
        self.assertEqual(given, {"cmake.define.SHOAL_CUDA_ARCHITECTURES": "90", "cmake.define.SHOAL_TORCH_DIR": str(folder), "wheel.build-tag": "213torch"})

    def test_this_python_says_where_its_own_torch_is_also_when_pip_hides_it(self):
        """What pip sets for a build: a path of its own in front, where torch is not, and no user's packages."""
        hidden = self.folder / "sitecustomize.py"
        hidden.write_text("import sys\nsys.path[:] = [entry for entry in sys.path if 'site-packages' not in entry]\n")
        os.environ.update({"PYTHONPATH": str(self.folder), "PYTHONNOUSERSITE": "1"})
        seen = subprocess.run([sys.executable, "-c", "import importlib.util as u; print(u.find_spec('torch'))"], capture_output=True, text=True)
        self.assertEqual(seen.stdout, "None\n")
        import torch

        self.assertEqual(shoal_build.find_torch(), Path(torch.__file__).parent)

    def test_without_a_torch_one_is_fetched_that_shoal_knows(self):
        self.without_torch()
        oldest, newest = shoal_build.supported_range()
        wanted = f"torch>=2.{oldest[1]},<2.{newest[1] + 1}"
        self.assertEqual(shoal_build.get_requires_for_build_wheel(), ["ninja", wanted])
        folder = self.torch(f"2.{newest[1]}.0", "fetched")
        sys.path.append(str(folder.parent))
        self.assertEqual(shoal_build.find_torch(), folder)
        self.assertEqual(shoal_build.dynamic_metadata("dependencies", {}), [f"torch==2.{newest[1]}.*"])

    def test_what_is_named_comes_first_and_must_be_there(self):
        self.environment_with("2.13.1")
        os.environ["SHOAL_TORCH"] = str(self.torch("2.12.0", "named"))
        self.assertEqual(shoal_build.dynamic_metadata("dependencies", {}), ["torch==2.12.*"])
        os.environ["SHOAL_TORCH"] = "/nowhere"
        with self.assertRaisesRegex(shoal_build.Unsupported, "SHOAL_TORCH=/nowhere is no package torch"):
            shoal_build.find_torch()

    def test_an_old_torch_is_refused_and_a_new_one_is_warned_of(self):
        oldest, newest = shoal_build.supported_range()
        for version in (f"2.{oldest[1] - 1}.1", "1.13.0"):
            with self.assertRaisesRegex(shoal_build.Unsupported, f"needs 2.{oldest[1]} or newer"):
                shoal_build.requirement(self.torch(version, version))
        self.assertEqual(shoal_build.requirement(self.torch(f"2.{newest[1] + 1}.0")), f"torch==2.{newest[1] + 1}.*")

    def test_cmake_refuses_and_warns_alike(self):
        oldest, newest = shoal_build.supported_range()
        for minor, done_well, words in ((oldest[1] - 1, False, f"needs torch 2.{oldest[1]} or newer"), (oldest[1], True, ""), (newest[1], True, ""),
                                        (newest[1] + 1, True, f"was tried up to torch 2.{newest[1]}")):
            folder = self.torch(f"2.{minor}.0+cpu", f"of{minor}")
            script = self.folder / "try.cmake"
            text = (ROOT / "cmake/TorchWheel.cmake").read_text().split("foreach(name")[0]
            script.write_text(f"set(CMAKE_SOURCE_DIR {ROOT})\n{text}\nmessage(STATUS \"minor ${{TORCH_MINOR}}\")\n")
            done = subprocess.run(["cmake", f"-DSHOAL_TORCH_DIR={folder}", "-P", script], capture_output=True, text=True)
            said = re.sub(r"\s+", " ", done.stdout + done.stderr)
            self.assertEqual(done.returncode == 0, done_well, said)
            self.assertIn(words, said)
            self.assertEqual(f"minor 2.{minor}" in said, done_well)
            self.assertEqual("CMake Warning" in said, minor > newest[1])

    def test_an_installed_shoal_wants_the_torch_that_it_was_built_for(self):
        folder = self.torch("2.12.0")
        text = (ROOT / "cmake/TorchWheel.cmake").read_text().split("foreach(name")[0]
        (self.folder / "try.cmake").write_text(f"set(SHOAL_BUILT_FOR_TORCH 2.11)\n{text}")
        done = subprocess.run(["cmake", f"-DSHOAL_TORCH_DIR={folder}", "-P", self.folder / "try.cmake"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("built for torch 2.11", re.sub(r"\s+", " ", done.stderr))


if __name__ == "__main__":
    unittest.main()
