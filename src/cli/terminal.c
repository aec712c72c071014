/* What goes to a terminal: models write any bytes, and files mean to steer it (OSC, CSI). Control
 * characters become question marks, also those of two bytes in UTF-8 and bytes that stand for one
 * outside UTF-8. What comes in pieces is looked at as a whole. */
#include "cli/cli.h"

enum { C1_LEAD = 0xC2, C1_FIRST = 0x80, C1_END = 0xA0 };

size_t ls_cli_plain(ls_plain_stream *stream, const char *text, size_t length, char *out) {
    size_t made = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)text[i];
        const bool inside = stream->more > 0 && (byte & 0xC0) == 0x80;
        const bool high = byte >= C1_FIRST && byte < C1_END;
        const bool low = (byte < ' ' && byte != '\n' && byte != '\t') || byte == 0x7F;
        const bool control = inside ? stream->lead && high : high || low;
        if (stream->lead && !(inside && high)) out[made++] = (char)C1_LEAD;
        stream->more = inside ? stream->more - 1 : (byte >= 0xC2) + (byte >= 0xE0) + (byte >= 0xF0);
        stream->lead = byte == C1_LEAD;
        if (!stream->lead) out[made++] = control ? '?' : (char)byte;
    }
    return made;
}
