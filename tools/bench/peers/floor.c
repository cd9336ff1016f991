/* The floor: unpack the crop of a JPEG and do nothing with it. No resizing, no reading of files, no batches.
 * libjpeg-turbo skips the rows above and the columns beside the crop and stops below it, as any loader could at best.
 * Settings are the library's own: exact DCT, fancy upsampling. Returns 0, or 1 for a JPEG it cannot unpack. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>

struct errors {
    struct jpeg_error_mgr manager;
    jmp_buf out;
};

static void leave(j_common_ptr info) {
    longjmp(((struct errors *)info->err)->out, 1);
}

static void be_silent(j_common_ptr info, int level) {
    (void)info;
    (void)level;
}

int unpack_crop(const unsigned char *jpeg, unsigned long num_bytes, int x, int y, int width, int height) {
    struct jpeg_decompress_struct info;
    struct errors errors;
    unsigned char *volatile rows = NULL;
    info.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = leave;
    errors.manager.emit_message = be_silent;
    if (setjmp(errors.out)) {
        jpeg_destroy_decompress(&info);
        free(rows);
        return 1;
    }
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, jpeg, num_bytes);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    JDIMENSION left = (JDIMENSION)x, wide = (JDIMENSION)width;
    jpeg_crop_scanline(&info, &left, &wide);
    if (y > 0)
        jpeg_skip_scanlines(&info, (JDIMENSION)y);
    enum { AT_ONCE = 16 };
    size_t row_bytes = (size_t)wide * 3;
    rows = malloc(row_bytes * AT_ONCE);
    if (rows == NULL)
        leave((j_common_ptr)&info);
    JSAMPROW pointers[AT_ONCE];
    for (int row = 0; row < AT_ONCE; row++)
        pointers[row] = rows + row_bytes * (size_t)row;
    while (info.output_scanline < (JDIMENSION)(y + height)) {
        JDIMENSION left_over = (JDIMENSION)(y + height) - info.output_scanline;
        jpeg_read_scanlines(&info, pointers, left_over < AT_ONCE ? left_over : AT_ONCE);
    }
    jpeg_destroy_decompress(&info);
    free(rows);
    return 0;
}
