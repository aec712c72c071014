#include "base/fp8.h"

#include <math.h>

typedef struct shape {
    int mantissa, bias; /* bits behind the point; of the exponent */
    uint8_t most;       /* code of the largest number */
} shape;

static const shape shapes[] = {
    [LS_FP8_E4M3] = {3, 7, 0x7e},
    [LS_FP8_E5M2] = {2, 15, 0x7b},
};

double ls_fp8_value(ls_fp8 format, uint8_t code) {
    const shape *s = &shapes[format];
    const int size = code & 0x7f, exponent = size >> s->mantissa;
    const int fraction = size & ((1 << s->mantissa) - 1), whole = 1 << s->mantissa;
    double value;
    if (size > s->most)
        value = format == LS_FP8_E5M2 && fraction == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - s->bias - s->mantissa);
    else
        value = ldexp(whole + fraction, exponent - s->bias - s->mantissa);
    return code & 0x80 ? -value : value;
}

uint8_t ls_fp8_code(ls_fp8 format, double value) {
    const shape *s = &shapes[format];
    const int sign = signbit(value) ? 0x80 : 0, lowest = 1 - s->bias;
    const double size = fabs(value);
    int exponent = 0;
    if (isnan(value)) return (uint8_t)(sign | LS_FP8_NAN);
    if (size >= ls_fp8_value(format, s->most)) return (uint8_t)(sign | s->most);
    frexp(size, &exponent);
    exponent = size == 0 || exponent - 1 < lowest ? lowest : exponent - 1;
    /* in units of the last bit; what rounds up to the next power of two carries into the
     * exponent */
    const int units = (int)nearbyint(ldexp(size, s->mantissa - exponent));
    const int code = units + ((exponent - lowest) << s->mantissa);
    return (uint8_t)(sign | (code > s->most ? s->most : code));
}

int ls_fp8_exponent(ls_fp8 format, uint16_t largest) {
    enum { FRACTION = 7, BIAS = 127, LOWEST = -100, HIGHEST = 60 };
    const int fraction = largest & ((1 << FRACTION) - 1), exponent = (largest >> FRACTION) - BIAS;
    const int top = format == LS_FP8_E4M3 ? 8 : 15;
    if (largest == 0) return 0;
    /* both formats end at 1.75 times a power of two */
    const int wanted = top - exponent - (fraction > 3 << (FRACTION - 2));
    return wanted < LOWEST ? LOWEST : wanted > HIGHEST ? HIGHEST : wanted;
}
