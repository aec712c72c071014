/* A program of somebody else: built against the installed header and library by test_install.sh. It
 * opens a run, scores a text in two cuts, decodes what it encoded, and generates. */
#include <longshot/longshot.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int count_bytes(void *user, const char *bytes, size_t length) {
    (void)bytes;
    *(size_t *)user += length;
    return 0;
}

static int fail(const char *what, longshot *session) {
    fprintf(stderr, "%s: %s\n", what, longshot_error(session));
    longshot_close(session);
    return 1;
}

int main(int argc, char **argv) {
    enum { MOST = 64 };
    static const char text[] = "document 1, line 2: what follows";
    int32_t tokens[MOST];
    double whole[MOST], cut[MOST];
    char back[MOST];
    size_t count, length, generated = 0;
    longshot *session, *missing;
    longshot_stream *stream;
    longshot_options options = longshot_options_default();
    options.dtype = "f64";
    if (argc != 2 || strlen(longshot_version()) == 0) return 2;
    if (longshot_open("no/such/folder", NULL, &missing) != LONGSHOT_EINPUT) return 3;
    if (strstr(longshot_error(missing), "no/such/folder") == NULL) return 4;
    longshot_close(missing);
    if (longshot_open(argv[1], &options, &session) != LONGSHOT_OK) return fail("open", session);
    if (longshot_encode(session, text, strlen(text), tokens, MOST, &count) != LONGSHOT_OK)
        return fail("encode", session);
    if (longshot_encode(session, text, strlen(text), tokens, 1, &length) != LONGSHOT_EUSE)
        return fail("too small a room", session);
    if (longshot_decode(session, tokens, count, back, MOST, &length) != LONGSHOT_OK ||
        length != strlen(text) || memcmp(back, text, length) != 0)
        return fail("decode", session);
    int64_t scored = (int64_t)count - 1;
    if (longshot_stream_open(session, MOST, 16, &stream) != LONGSHOT_OK)
        return fail("stream", session);
    if (longshot_stream_loss(stream, tokens, tokens + 1, scored, whole) != LONGSHOT_OK)
        return fail("loss", session);
    longshot_stream_reset(stream);
    if (longshot_stream_loss(stream, tokens, tokens + 1, 5, cut) != LONGSHOT_OK ||
        longshot_stream_loss(stream, tokens + 5, tokens + 6, scored - 5, cut + 5) != LONGSHOT_OK)
        return fail("cut", session);
    if (longshot_stream_position(stream) != scored) return fail("position", session);
    for (int64_t i = 0; i < scored; i++)
        if (!(fabs(whole[i] - cut[i]) < 1e-9)) return fail("the cut matters", session);
    longshot_stream_close(stream);
    const longshot_sampling how = {.temperature = 1, .top_p = 1, .seed = 7};
    if (longshot_generate(session, "document", 8, &how, count_bytes, &generated) != LONGSHOT_OK ||
        generated != 8)
        return fail("generate", session);
    printf("%lld parameters, %zu bytes\n", (long long)longshot_parameters(session), generated);
    longshot_close(session);
    return 0;
}
