#!/bin/sh
# Build the crop kernel for 64-bit ARM and run its tests there in emulation: kernel_on_arm.sh FOLDER, from the checkout.
#
#   dpkg --add-architecture arm64 && apt-get update && apt-get install qemu-user gcc-aarch64-linux-gnu   # Debian 12
#   pip install uv
#
# FOLDER takes 400 MB: Debian's Python for ARM, PyPI's wheels, and a copy of the checkout. No root is needed for it.
set -eu
folder=$(realpath "$1") triple=aarch64-linux-gnu python=python3.11
mkdir -p "$folder/debs" "$folder/root" "$folder/bin" "$folder/tree"
git ls-files -z | xargs -0 cp --parents -t "$folder/tree"

cd "$folder/debs"
for name in $python $python-minimal lib$python-minimal lib$python-stdlib lib$python-dev libjpeg62-turbo \
    libjpeg62-turbo-dev libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 liblzma5 libbz2-1.0; do
    apt-get download "$name:arm64"
done
for deb in *.deb; do dpkg-deb -x "$deb" "$folder/root"; done
uv pip install --target "$folder/site" --python-platform aarch64-manylinux_2_28 --python-version 3.11 \
    --only-binary :all: numpy 'pillow>=11' xxhash threadpoolctl setuptools pytest pytest-timeout hypothesis

# The compiler runs on this machine and brings the C library; Python's and libjpeg's files come from FOLDER.
include="$folder/root/usr/include"
cat >"$folder/bin/cc" <<END
#!/bin/sh
unset LD_LIBRARY_PATH PYTHONHOME
exec $triple-gcc -I$include/$python -I$include -I$include/$triple "\$@" -L$folder/bin
END
chmod +x "$folder/bin/cc"
cp -P "$folder/root/usr/lib/$triple"/libjpeg.so* "$folder/bin/"

cd "$folder/tree"
export PATH="$folder/bin:$PATH" PYTHONHOME="$folder/root/usr" QEMU_LD_PREFIX="$folder/root" CC=cc LDSHARED="cc -shared"
export PYTHONPATH="$folder/site:packages/shardkit/src:packages/wdsloader/src:."
libraries="$folder/root/lib/$triple:$folder/root/usr/lib/$triple"
on_arm() { qemu-aarch64 -E LD_LIBRARY_PATH="$libraries" "$folder/root/usr/bin/$python" "$@"; }
(cd packages/wdsloader && on_arm setup.py build_ext --inplace -q)
on_arm -c "import platform; from wdsloader import _crop; print(platform.machine(), _crop.VERSION, _crop.LIBJPEG)"
on_arm -m pytest -q tests/wdsloader/test_kernel.py tests/wdsloader/test_restart_markers.py
