/* The Python module wdsloader._crop; its functions are described in _crop.pyi. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* Raised when the pixels that come out, or what is taken, change. */
#define KERNEL_VERSION "1.1"

/* The most pixels a side of the output may have; JPEG's own limit. */
#define MAX_SIDE 65500

/* The most units between restart markers that a JPEG can say. */
#define MAX_INTERVAL 65535

static PyObject *read_size(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    struct layout layout;
    struct reason reason;
    enum kernel_status status = read_layout(view.buf, (size_t)view.len, &layout, &reason);
    PyBuffer_Release(&view);
    if (status != KERNEL_DONE)
        Py_RETURN_NONE;
    return Py_BuildValue("(ii)", layout.width, layout.height);
}

static bool is_slot(const Py_buffer *out) {
    return out->ndim == 3 && out->itemsize == 1 && out->shape[2] == 3 && out->shape[0] >= 1 &&
           out->shape[1] >= 1 && out->shape[0] <= MAX_SIDE && out->shape[1] <= MAX_SIDE;
}

static PyObject *crop(PyObject *module, PyObject *args) {
    (void)module;
    struct crop crop;
    Py_buffer data, out;
    PyObject *slot;
    int flip, dct_scaling;
    if (!PyArg_ParseTuple(args, "y*(dddd)Opp:crop", &data, &crop.x, &crop.y, &crop.width, &crop.height, &slot, &flip,
                          &dct_scaling))
        return NULL;
    if (PyObject_GetBuffer(slot, &out, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    enum kernel_status status = KERNEL_OTHER;
    struct reason reason;
    bool fits = is_slot(&out);
    if (fits) {
        crop.flip = flip != 0;
        crop.dct_scaling = dct_scaling != 0;
        crop.out = out.buf;
        crop.out_height = (int)out.shape[0];
        crop.out_width = (int)out.shape[1];
        Py_BEGIN_ALLOW_THREADS
        status = crop_picture(data.buf, (size_t)data.len, &crop, &reason);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&data);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "out must be bytes of shape (height, width, 3), sides 1..%d", MAX_SIDE);
    if (status == KERNEL_NO_MEMORY)
        return PyErr_NoMemory();
    if (status == KERNEL_OTHER)
        return PyUnicode_DecodeUTF8(reason.text, (Py_ssize_t)strlen(reason.text), "replace");
    Py_RETURN_NONE;
}

static PyObject *insert(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    int interval;
    if (!PyArg_ParseTuple(args, "y*i:insert_restarts", &data, &interval))
        return NULL;
    if (interval < 1 || interval > MAX_INTERVAL) {
        PyBuffer_Release(&data);
        return PyErr_Format(PyExc_ValueError, "units must be in 1..%d, got %d", MAX_INTERVAL, interval);
    }
    uint8_t *out = NULL;
    size_t size = 0;
    struct reason reason;
    enum kernel_status status;
    Py_BEGIN_ALLOW_THREADS
    status = insert_restarts(data.buf, (size_t)data.len, (unsigned)interval, &out, &size, &reason);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    if (status == KERNEL_NO_MEMORY)
        return PyErr_NoMemory();
    if (status == KERNEL_OTHER)
        return PyUnicode_DecodeUTF8(reason.text, (Py_ssize_t)strlen(reason.text), "replace");
    PyObject *result = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)size);
    free(out);
    return result;
}

/* Take the sizes of `images` if it is (n, h, w, 3) and `out` has as many numbers. */
static bool take_sizes(const Py_buffer *images, const Py_buffer *out, struct normalizing *how) {
    if (images->ndim != 4 || images->itemsize != 1 || images->shape[3] != 3)
        return false;
    how->num_pictures = (size_t)images->shape[0];
    how->num_pixels = (size_t)images->shape[1] * (size_t)images->shape[2];
    how->halves = out->itemsize == 2;
    return (out->itemsize == 4 || out->itemsize == 2) && out->len / out->itemsize == images->len;
}

static PyObject *normalize(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *from, *to;
    struct normalizing how;
    float *a = how.shift, *b = how.scale;
    int channels_last;
    if (!PyArg_ParseTuple(args, "OO(fff)(fff)p:normalize", &from, &to, a, a + 1, a + 2, b, b + 1, b + 2,
                          &channels_last))
        return NULL;
    how.channels_last = channels_last != 0;
    Py_buffer images, out;
    if (PyObject_GetBuffer(from, &images, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return NULL;
    if (PyObject_GetBuffer(to, &out, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyBuffer_Release(&images);
        return NULL;
    }
    bool fits = take_sizes(&images, &out, &how);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        normalize_pictures(&how, images.buf, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&images);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "images must be bytes of shape (n, height, width, 3), and out as many "
                                              "numbers of 4 or 2 bytes");
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"read_size", read_size, METH_O, NULL},
                                {"crop", crop, METH_VARARGS, NULL},
                                {"insert_restarts", insert, METH_VARARGS, NULL},
                                {"normalize", normalize, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static int fill(PyObject *module) {
    if (PyModule_AddStringConstant(module, "VERSION", KERNEL_VERSION) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "LIBJPEG", LIBJPEG_NAME);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "wdsloader._crop", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__crop(void) { return PyModuleDef_Init(&definition); }
