/* How libjpeg-turbo fails in decode.c and restarts.c: at the first error or warning, with its words as the reason. */
#ifndef WDSLOADER_FAILING_H
#define WDSLOADER_FAILING_H

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#include "kernel.h"

/* The first member of what `client_data` points to; whoever calls libjpeg sets `on_error` before. */
struct failing {
    struct jpeg_error_mgr errors;
    jmp_buf on_error;
    struct reason *reason;
};

static void stop(j_common_ptr jpeg) {
    struct failing *failing = jpeg->client_data;
    jpeg->err->format_message(jpeg, failing->reason->text);
    longjmp(failing->on_error, 1);
}

/* A warning (level -1) stops as an error does: from there on the picture would be filled with gray. */
static void stop_at_warning(j_common_ptr jpeg, int level) {
    if (level < 0)
        stop(jpeg);
}

/* Return what is to be libjpeg's `err`. */
static struct jpeg_error_mgr *begin_failing(struct failing *failing, struct reason *reason) {
    failing->reason = reason;
    jpeg_std_error(&failing->errors);
    failing->errors.error_exit = stop;
    failing->errors.emit_message = stop_at_warning;
    return &failing->errors;
}

/* What libjpeg has stopped for. */
static enum kernel_status status_of(const struct failing *failing) {
    return failing->errors.msg_code == JERR_OUT_OF_MEMORY ? KERNEL_NO_MEMORY : KERNEL_OTHER;
}

static enum kernel_status other(struct failing *failing, const char *text) {
    snprintf(failing->reason->text, REASON_SIZE, "%s", text);
    return KERNEL_OTHER;
}

/* A progressive picture that lacks bits is smoothed by libjpeg, with Pillow. */
static enum kernel_status require_all_scans(struct failing *failing, const struct jpeg_decompress_struct *jpeg) {
    if (jpeg->coef_bits)
        for (int c = 0; c < jpeg->num_components; c++)
            for (int k = 0; k < DCTSIZE2; k++)
                if (jpeg->coef_bits[c][k] != 0)
                    return other(failing, "a progressive picture without all of its scans");
    return KERNEL_DONE;
}

#endif
