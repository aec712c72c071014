/* What each sample of a task must satisfy, told from the sample alone. */
#include "task_fixture.h"

static void induction_answers_with_what_followed(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_task task = make_task(&ctx, "task=induction");
    assert_int_equal(ls_task_vocabulary(&task), 16);
    assert_int_equal(task.type->length, 256);
    static const int64_t lengths[] = {3, 4, 9, 256, 4096};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        const int64_t length = lengths[l];
        int64_t lowest = length, highest = -1;
        double mean = 0, samples = 200;
        for (int64_t i = 0; i < (int64_t)samples; i++) {
            int64_t marks = 0, place = -1;
            test_sample(&task, i, length);
            for (int64_t t = 0; t + 1 < length; t++)
                if (inputs[t] == 15) marks++, place = t;
            assert_int_equal(marks, 1);
            assert_int_equal(inputs[length - 1], 15);
            assert_int_equal(count_scored(length), 1);
            assert_int_equal(targets[length - 1], inputs[place + 1]);
            assert_in_range(inputs[place + 1], 0, 14);
            assert_in_range(place, 0, length - 3);
            lowest = ls_min(lowest, place);
            highest = ls_max(highest, place);
            mean += (double)place / samples;
        }
        /* uniform over all places: five deviations */
        const double middle = (double)(length - 3) / 2;
        assert_true(fabs(mean - middle) <= 5 * (double)length / sqrt(12 * samples));
        if (length < 10) assert_true(lowest == 0 && highest == length - 3);
    }
    ls_task_clear(&ctx, &task);
}

static void h3_induction_copies_after_every_mark(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t copy, triggers;
    } cases[] = {{"task=h3_induction", 1, 1},
                 {"task=h3_induction task.copy=3 task.triggers=4", 3, 4}};
    for (int c = 0; c < 2; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t copy = cases[c].copy, length = 30 + copy, n = 30;
        int64_t single = 0, samples = 1000;
        assert_int_equal(ls_task_vocabulary(&task), 20);
        for (int64_t i = 0; i < samples; i++) {
            int64_t marks = 0;
            test_sample(&task, i, length);
            assert_int_equal(inputs[n], 18);
            assert_int_equal(count_scored(length), copy);
            for (int64_t k = 0; k < copy; k++) {
                assert_in_range(targets[n + k], 0, 17);
                if (k + 1 < copy) assert_int_equal(inputs[n + 1 + k], targets[n + k]);
            }
            for (int64_t t = 0; t < n; t++) {
                assert_true(inputs[t] < 19);
                if (inputs[t] != 18) continue;
                assert_true(t < n - 1 - copy);
                for (int64_t k = 0; k < copy; k++)
                    assert_int_equal(inputs[t + 1 + k], targets[n + k]);
                marks++;
            }
            assert_in_range(marks, 1, cases[c].triggers);
            single += marks == 1;
        }
        if (cases[c].triggers == 1) assert_int_equal(single, samples);
        /* half of them, and a few more whose places met */
        if (cases[c].triggers > 1) assert_in_range(single, 430, 650);
        ls_task_clear(&ctx, &task);
    }
}

static void recall_answers_with_the_value(void **state) {
    (void)state;
    enum { LENGTH = 24 };
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t key_tokens, alphabet, mark;
        bool absent;
    } cases[] = {{"task=associative_recall", 1, 4, 8, false},
                 {"task=associative_recall task.absent=true task.vocabulary=42", 1, 20, 40, true},
                 {"task=associative_recall task.key_tokens=2", 2, 4, 8, false}};
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t width = cases[c].key_tokens, step = width + 1, end = LENGTH - step;
        int64_t missing = 0;
        for (int64_t i = 0; i < 300; i++) {
            int32_t value = -1;
            test_sample(&task, i, LENGTH);
            assert_int_equal(count_scored(LENGTH), 1);
            assert_int_equal(inputs[end], cases[c].mark);
            for (int64_t t = 0; t < end; t += step) {
                for (int64_t k = 0; k < width; k++)
                    assert_in_range(inputs[t + k], 0, cases[c].alphabet - 1);
                assert_in_range(inputs[t + width], cases[c].alphabet, cases[c].mark - 1);
                const size_t bytes = (size_t)width * sizeof *inputs;
                for (int64_t u = 0; u < t; u += step) /* repeats agree */
                    if (memcmp(inputs + t, inputs + u, bytes) == 0)
                        assert_int_equal(inputs[t + width], inputs[u + width]);
                if (memcmp(inputs + t, inputs + end + 1, bytes) == 0) value = inputs[t + width];
            }
            missing += value < 0;
            if (value < 0) value = (int32_t)cases[c].mark + 1;
            assert_int_equal(targets[LENGTH - 1], value);
        }
        assert_true(cases[c].absent ? missing > 100 && missing < 290 : missing == 0);
        ls_task_clear(&ctx, &task);
    }
}

static void copy_keeps_the_order(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t tokens, length;
        int32_t mark;
        bool scattered;
    } cases[] = {{"task=selective_copy", 16, 4096, 15, true},
                 {"task=selective_copy task.tokens=3 task.vocabulary=5", 3, 10, 4, true},
                 {"task=selective_copy task.tokens=4", 4, 8, 15, true},
                 {"task=selective_copy task.scattered=false", 16, 100, 15, false}};
    for (int c = 0; c < 4; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length, tokens = cases[c].tokens, places = length - tokens;
        double mean = 0, samples = 300;
        for (int64_t i = 0; i < (int64_t)samples; i++) {
            int64_t found = 0;
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), tokens);
            for (int64_t t = 0; t < places; t++) {
                assert_int_equal(targets[t], -1);
                assert_true(inputs[t] < cases[c].mark);
                if (inputs[t] == 0) continue;
                mean += (double)t / (samples * (double)tokens);
                if (!cases[c].scattered) assert_int_equal(t, found);
                assert_int_equal(targets[places + found++], inputs[t]);
            }
            assert_int_equal(found, tokens);
            for (int64_t t = places; t < length; t++) assert_int_equal(inputs[t], cases[c].mark);
        }
        const double middle = (double)(places - 1) / 2;
        if (cases[c].scattered)
            assert_true(fabs(mean - middle) <=
                        5 * (double)places / sqrt(12 * samples * (double)tokens));
        ls_task_clear(&ctx, &task);
    }
}

static void mqar_asks_every_key_once(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const struct {
        const char *words;
        int64_t vocabulary, pairs, passes, length;
    } cases[] = {{"task=mqar", 8192, 8, 1, 64},
                 {"task=mqar task.pairs=16 task.random_fill=false", 8192, 16, 1, 64},
                 {"task=mqar task.vocabulary=64 task.pairs=5 task.passes=3", 64, 5, 3, 90}};
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t pairs = cases[c].pairs, context = 2 * pairs * cases[c].passes;
        const int64_t half = cases[c].vocabulary / 2, length = cases[c].length;
        assert_int_equal(ls_task_vocabulary(&task), cases[c].vocabulary);
        assert_int_equal(ls_task_check(&ctx, &task, context + 2 * pairs), LS_OK);
        assert_int_equal(ls_task_check(&ctx, &task, context + 2 * pairs - 2), LS_EUSE);
        ctx.error = (ls_error){0};
        assert_int_equal(ls_task_check(&ctx, &task, length + 1), LS_EUSE);
        ctx.error = (ls_error){0};
        for (int64_t i = 0; i < 100; i++) {
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), pairs);
            for (int64_t k = 0; k < pairs; k++) {
                assert_in_range(inputs[2 * k], 1, half - 1);
                assert_in_range(inputs[2 * k + 1], half, cases[c].vocabulary - 1);
                for (int64_t j = 0; j < k; j++) {
                    assert_int_not_equal(inputs[2 * k], inputs[2 * j]);
                    assert_int_not_equal(inputs[2 * k + 1], inputs[2 * j + 1]);
                }
                int64_t asked = 0;
                for (int64_t t = context; t < length; t++)
                    if (targets[t] == inputs[2 * k + 1]) {
                        assert_int_equal(inputs[t], inputs[2 * k]);
                        assert_int_equal((t - context) % 2, 0);
                        asked++;
                    }
                assert_int_equal(asked, 1);
            }
            for (int64_t t = 2 * pairs; t < context; t++)
                assert_int_equal(inputs[t], inputs[t - 2 * pairs]);
            for (int64_t t = context; c == 1 && t < length; t++)
                assert_true(targets[t] >= 0 || inputs[t] == 0);
        }
        ls_task_clear(&ctx, &task);
    }
}

/* One question in 20 slots, 20000 times, against i^(power - 1). */
static void mqar_gaps_follow_the_power_law(void **state) {
    (void)state;
    enum { SLOTS = 20, LENGTH = 2 + 2 * SLOTS, SAMPLES = 20000 };
    static const struct {
        const char *words;
        double power;
    } cases[] = {{"task=mqar task.pairs=1 task.random_fill=false", 0.01},
                 {"task=mqar task.pairs=1 task.random_fill=false task.power=0", 0},
                 {"task=mqar task.pairs=1 task.random_fill=false task.power=1", 1}};
    ls_ctx ctx = ls_ctx_default();
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        double counts[SLOTS] = {0}, sum = 0;
        for (int64_t i = 0; i < SAMPLES; i++) {
            test_sample(&task, i, LENGTH);
            for (int64_t slot = 0; slot < SLOTS; slot++) counts[slot] += targets[2 + 2 * slot] >= 0;
        }
        for (int slot = 1; slot <= SLOTS; slot++) sum += pow(slot, cases[c].power - 1);
        for (int slot = 1; slot <= SLOTS; slot++) {
            double share = pow(slot, cases[c].power - 1) / sum, wanted = SAMPLES * share;
            assert_true(fabs(counts[slot - 1] - wanted) <= 5 * sqrt(wanted * (1 - share)));
        }
        ls_task_clear(&ctx, &task);
    }
}

/* RMT's copy (the symbols twice) and reverse (backwards), told from the sample alone. */
static void recitals_say_the_symbols_again(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int64_t times, symbols, length;
        bool backwards;
    } cases[] = {{"task=copy", 2, 8, 72, false},
                 {"task=copy task.symbols=10", 2, 10, 3, false},
                 {"task=copy", 2, 8, 50, false},
                 {"task=reverse", 1, 8, 48, true},
                 {"task=reverse task.symbols=10", 1, 10, 49, true}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length, times = cases[c].times;
        const int64_t n = length / (times + 1), padding = length - n * (times + 1);
        int64_t seen = 0;
        assert_int_equal(ls_task_vocabulary(&task), 2 + cases[c].symbols);
        for (int64_t i = 0; i < 50; i++) {
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), times * n);
            for (int64_t t = 0; t < padding; t++) assert_int_equal(inputs[t], 0);
            assert_int_equal(inputs[padding + n], 1);
            for (int64_t t = 0; t < n; t++) {
                const int32_t symbol = inputs[padding + t];
                assert_in_range(symbol, 2, 1 + cases[c].symbols);
                seen |= 1ll << symbol;
                for (int64_t again = 0; again < times; again++) {
                    const int64_t at =
                        padding + n + again * n + (cases[c].backwards ? n - 1 - t : t);
                    assert_int_equal(targets[at], symbol);
                    if (at + 1 < length) assert_int_equal(inputs[at + 1], symbol);
                }
            }
        }
        assert_int_equal(seen, (4ll << cases[c].symbols) - 4);
        ls_task_clear(&ctx, &task);
    }
}

/* Perceiver AR's: what is predicted, with what went before, reads the same from both ends. */
static void mirrors_read_the_same_backwards(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int64_t symbols, length;
    } cases[] = {{"task=mirrored_copy", 256, 32},
                 {"task=mirrored_copy task.symbols=5", 5, 2},
                 {"task=mirrored_copy task.symbols=9", 9, 41}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length, half = length / 2, odd = length % 2;
        assert_int_equal(ls_task_vocabulary(&task), 1 + cases[c].symbols);
        for (int64_t i = 0; i < 50; i++) {
            int32_t said[64]; /* what comes after each input */
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), half);
            for (int64_t t = 0; t <= odd; t++) assert_int_equal(inputs[t], 0);
            for (int64_t t = 0; t + 1 < length; t++) said[t] = inputs[t + 1];
            said[length - 1] = targets[length - 1];
            for (int64_t t = odd; t < length; t++) {
                assert_in_range(said[t], 1, cases[c].symbols);
                assert_int_equal(said[t], said[odd + length - 1 - t]);
                assert_int_equal(targets[t], t < odd + half ? -1 : said[t]);
            }
        }
        ls_task_clear(&ctx, &task);
    }
}

static void retrieval_answers_with_the_digit(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int64_t pairs, letters, digits, length;
    } cases[] = {{"task=retrieval", 4, 26, 10, 10},
                 {"task=retrieval task.symbols=8", 4, 26, 8, 33},
                 {"task=retrieval task.pairs=7 task.letters=7", 7, 7, 10, 16}};
    ls_ctx ctx = ls_ctx_default();
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length, start = length - 2 * cases[c].pairs - 2;
        const int64_t letter = 2 + cases[c].digits;
        int64_t asked = 0;
        assert_int_equal(ls_task_vocabulary(&task), letter + cases[c].letters);
        for (int64_t i = 0; i < 200; i++) {
            test_sample(&task, i, length);
            assert_int_equal(count_scored(length), 1);
            assert_int_equal(inputs[length - 1], 1);
            for (int64_t t = 0; t < start; t++) assert_int_equal(inputs[t], 0);
            int64_t found = 0;
            for (int64_t p = 0; p < cases[c].pairs; p++) {
                const int32_t *pair = inputs + start + 2 * p;
                assert_in_range(pair[0], letter, letter + cases[c].letters - 1);
                assert_in_range(pair[1], 2, letter - 1);
                if (pair[0] != inputs[length - 2]) continue;
                assert_int_equal(targets[length - 1], pair[1]);
                asked |= 1 << p;
                found++;
            }
            assert_int_equal(found, 1);
        }
        assert_int_equal(asked, (1 << cases[c].pairs) - 1);
        ls_task_clear(&ctx, &task);
    }
    ls_task task = make_task(&ctx, "task=retrieval task.pairs=27");
    assert_int_equal(ls_task_check(&ctx, &task, 100), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "26 letters"));
    ls_task_clear(&ctx, &task);
}

static void passkeys_are_told_twice(void **state) {
    (void)state;
    enum { MARK = 10, QUESTION, FILLER };
    static const struct {
        const char *words;
        int64_t digits, filler, length;
        double depth;
    } cases[] = {{"task=passkey", 5, 16, 256, -1},
                 {"task=passkey task.digits=1 task.filler=3", 1, 3, 9, -1},
                 {"task=passkey task.random_fill=true", 5, 16, 17, -1},
                 {"task=passkey task.depth=0", 5, 16, 100, 0},
                 {"task=passkey task.depth=0.25 task.random_fill=true", 5, 16, 97, 0.25},
                 {"task=passkey task.depth=1", 5, 16, 100, 1}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t digits = cases[c].digits, length = cases[c].length, samples = 300;
        const int64_t question = length - digits, told = 2 * (1 + digits), room = question - told;
        const bool turns = strstr(cases[c].words, "random_fill") == NULL;
        double mean = 0;
        assert_int_equal(ls_task_vocabulary(&task), FILLER + cases[c].filler);
        for (int64_t i = 0; i < samples; i++) {
            test_sample(&task, i, length);
            int64_t place = 0, filler = 0;
            while (inputs[place] != MARK) place++;
            for (int64_t again = 0; again < 2; again++) {
                const int32_t *sentence = inputs + place + again * (1 + digits);
                assert_int_equal(sentence[0], MARK);
                for (int64_t k = 0; k < digits; k++) {
                    assert_in_range(sentence[1 + k], k == 0 && digits > 1, 9);
                    assert_int_equal(sentence[1 + k], targets[question + k]);
                }
            }
            for (int64_t t = 0; t < question; t++) {
                if (t >= place && t < place + told) continue;
                assert_in_range(inputs[t], FILLER, FILLER + cases[c].filler - 1);
                if (turns) assert_int_equal(inputs[t], FILLER + filler % cases[c].filler);
                filler++;
            }
            assert_int_equal(filler, room);
            assert_int_equal(inputs[question], QUESTION);
            assert_int_equal(count_scored(length), digits);
            for (int64_t k = 0; k + 1 < digits; k++)
                assert_int_equal(inputs[question + 1 + k], targets[question + k]);
            if (cases[c].depth >= 0) assert_int_equal(place, lround(cases[c].depth * (double)room));
            mean += (double)place / (double)samples;
        }
        if (cases[c].depth < 0) /* uniform: five deviations */
            assert_true(fabs(mean - (double)room / 2) <=
                        5 * (double)(room + 1) / sqrt(12 * (double)samples));
        ls_task_clear(&ctx, &task);
    }
}

/* Where an answer of six bytes begins, the same sentence was told before; rounds ask more. */
static void needles_are_told_before_they_are_asked(void **state) {
    (void)state;
    enum { ANSWER = 6, SAMPLES = 100 };
    static const struct {
        const char *words;
        int64_t length, least, most; /* questions of a sample */
    } cases[] = {{"task=text_needle task.needles=1", 512, 1, 1},
                 {"task=text_needle", 512, 1, 4},
                 {"task=text_needle task.needles=1 task.rounds=4", 512, 1, 4},
                 {"task=text_needle task.needles=2 task.rounds=16", 120, 1, 1},
                 {"task=text_needle task.needles=2 task.rounds=16", 1024, 1, 8}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length;
        int64_t fewest = LONGEST, most = 0;
        for (int64_t i = 0; i < SAMPLES; i++) {
            char text[LONGEST + 2] = "", sentence[128];
            test_sample(&task, i, length);
            for (int64_t t = 0; t < length; t++) text[t] = (char)inputs[t];
            text[length] = (char)targets[length - 1]; /* the last answer ends the sample */
            assert_in_range(text[length], '0', '9');
            for (int64_t t = 0; t < length; t++) {
                if (targets[t] < 0) continue;
                const char *answer = text + t + 1, *begins = answer;
                while (memcmp(begins, " The special", 12) != 0) begins--;
                snprintf(sentence, sizeof sentence, "%.*s", (int)(answer + ANSWER - begins),
                         begins);
                const char *told = strstr(text, sentence);
                assert_true(told != NULL && told < begins && told[strlen(sentence)] == '.');
                t += ANSWER - 1;
            }
            const int64_t asked = count_scored(length) / ANSWER;
            assert_int_equal(count_scored(length) % ANSWER, 0);
            fewest = ls_min(fewest, asked);
            most = ls_max(most, asked);
        }
        assert_int_equal(fewest, cases[c].least);
        assert_int_equal(most, cases[c].most);
        ls_task_clear(&ctx, &task);
    }
}

static void facts_tell_the_last_place(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int64_t facts, persons, places, filler, length;
    } cases[] = {{"task=facts", 4, 4, 6, 16, 512},
                 {"task=facts task.facts=20 task.persons=3 task.places=2", 20, 3, 2, 16, 100},
                 {"task=facts task.facts=5 task.persons=50 task.filler=1", 5, 50, 6, 1, 17}};
    ls_ctx ctx = ls_ctx_default();
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t length = cases[c].length, samples = 200;
        const int32_t went = (int32_t)cases[c].filler, person = went + 2;
        const int32_t place = person + (int32_t)cases[c].persons;
        double mean = 0;
        assert_int_equal(ls_task_vocabulary(&task), place + cases[c].places);
        for (int64_t i = 0; i < samples; i++) {
            test_sample(&task, i, length);
            int64_t facts = 0;
            int32_t last = -1;
            for (int64_t t = 0; t < length - 2;) {
                if (inputs[t] < went) {
                    t++;
                    continue;
                }
                assert_in_range(inputs[t], person, place - 1);
                assert_int_equal(inputs[t + 1], went);
                assert_in_range(inputs[t + 2], place, place + cases[c].places - 1);
                if (inputs[t] == inputs[length - 1]) last = inputs[t + 2];
                mean += (double)t / (double)(samples * cases[c].facts);
                t += 3;
                facts++;
            }
            assert_int_equal(facts, cases[c].facts);
            assert_int_equal(inputs[length - 2], went + 1);
            assert_int_equal(count_scored(length), 1);
            assert_int_equal(targets[length - 1], last);
        }
        /* anywhere: five deviations of as many independent places */
        assert_true(fabs(mean - (double)(length - 5) / 2) <=
                    5 * (double)length / sqrt(12 * (double)(samples * cases[c].facts)));
        ls_task_clear(&ctx, &task);
    }
}

/* The value of the list at *at and its depth, by a plain reading; *at moves behind it. */
static int list_value(int64_t *at, int64_t length, int64_t *depth) {
    assert_true(*at < length);
    const int32_t token = inputs[(*at)++];
    int64_t deepest = 0, counts[10] = {0}, count = 0, sum = 0;
    *depth = 1;
    if (token < 10) return token;
    assert_in_range(token, 10, 13);
    for (assert_true(*at < length); inputs[*at] != 14; count++) {
        int64_t below;
        const int value = list_value(at, length, &below);
        deepest = ls_max(deepest, below);
        counts[value]++;
        sum += value;
        assert_true(*at < length);
    }
    (*at)++;
    *depth = 1 + deepest;
    assert_in_range(count, 2, 10);
    int nth[2], smallest = 0, largest = 9;
    while (counts[smallest] == 0) smallest++;
    while (counts[largest] == 0) largest--;
    for (int side = 0; side < 2; side++) { /* the middle one, or the two of them */
        int64_t rank = side == 0 ? (count - 1) / 2 : count / 2, passed = counts[0];
        for (nth[side] = 0; passed <= rank;) passed += counts[++nth[side]];
    }
    const int values[] = {smallest, largest, (nth[0] + nth[1]) / 2, (int)(sum % 10)};
    return values[token - 10];
}

static void listops_has_its_value(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int64_t length, low, depth;
    } cases[] = {{"task=listops", 2000, 500, 10},
                 {"task=listops task.min_length=20", 64, 20, 10},
                 {"task=listops task.max_depth=3", 64, 16, 3}};
    ls_ctx ctx = ls_ctx_default();
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        const int64_t samples = c == 0 ? 400 : 200;
        double mean = 0, labels[10] = {0}, operators[4] = {0}, all = 0;
        int64_t deepest = 0;
        assert_int_equal(ls_task_vocabulary(&task), 15);
        assert_int_equal(task.type->classes, 10);
        assert_int_equal(ls_task_targets(&task, cases[c].length), 1);
        for (int64_t i = 0; i < samples; i++) {
            int64_t at = 0, length = 0, depth;
            targets[1] = 77; /* there is one target, and nothing behind it is touched */
            test_sample(&task, i, cases[c].length);
            assert_int_equal(targets[1], 77);
            while (length < cases[c].length && inputs[length] >= 0) length++;
            assert_in_range(length, cases[c].low + 1, cases[c].length - 1);
            assert_int_equal(list_value(&at, length, &depth), targets[0]);
            assert_int_equal(at, length);
            assert_true(depth <= cases[c].depth);
            for (int64_t t = 0; t < length; t++)
                if (inputs[t] >= 10 && inputs[t] < 14) operators[inputs[t] - 10]++, all++;
            deepest = ls_max(deepest, depth);
            labels[targets[0]]++;
            mean += (double)length / (double)samples;
        }
        if (c != 1) assert_int_equal(deepest, cases[c].depth); /* short trees seldom are deep */
        for (int k = 0; k < 4; k++)
            assert_true(fabs(operators[k] - all / 4) <= 5 * sqrt(all * 3 / 16));
        if (c == 0) {
            /* 100,000 accepted trees of the source's grammar: mean 1,034, 17 % of 0 and of 9 */
            assert_true(fabs(mean - 1034) < 5 * 400 / sqrt((double)samples));
            for (int k = 0; k < 10; k += 9) {
                const double share = labels[k] / (double)samples;
                assert_true(fabs(share - 0.169) < 5 * sqrt(0.169 * 0.831 / (double)samples));
            }
        }
        ls_task_clear(&ctx, &task);
    }
}

/* Where no tree fits, the rule of the longest that is short enough ends the search. */
static void listops_ends_without_a_fit(void **state) {
    (void)state;
    enum { LENGTH = 40 };
    static const struct {
        const char *words;
        int64_t most;
    } cases[] = {{"task=listops task.nesting=0 task.max_depth=3", 1},
                 {"task=listops task.nesting=1 task.max_depth=40", 1},
                 {"task=listops task.nesting=1e-4 task.max_depth=3", 12}};
    ls_ctx ctx = ls_ctx_default();
    for (int c = 0; c < 3; c++) {
        ls_task task = make_task(&ctx, cases[c].words);
        assert_int_equal(ls_task_check(&ctx, &task, LENGTH), LS_OK);
        for (int64_t i = 0; i < 3; i++) {
            int64_t at = 0, length = 0, depth;
            test_sample(&task, i, LENGTH);
            while (length < LENGTH && inputs[length] >= 0) length++;
            assert_in_range(length, 1, cases[c].most);
            assert_int_equal(list_value(&at, length, &depth), targets[0]);
            assert_int_equal(at, length);
        }
        ls_task_clear(&ctx, &task);
    }
    ls_task task = make_task(&ctx, "task=listops task.max_depth=2");
    assert_int_equal(ls_task_check(&ctx, &task, LENGTH), LS_OK);
    assert_int_equal(ls_task_check(&ctx, &task, 48), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "at most 12 tokens"));
    ls_task_clear(&ctx, &task);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(induction_answers_with_what_followed),
        cmocka_unit_test(h3_induction_copies_after_every_mark),
        cmocka_unit_test(recall_answers_with_the_value),
        cmocka_unit_test(copy_keeps_the_order),
        cmocka_unit_test(mqar_asks_every_key_once),
        cmocka_unit_test(mqar_gaps_follow_the_power_law),
        cmocka_unit_test(recitals_say_the_symbols_again),
        cmocka_unit_test(mirrors_read_the_same_backwards),
        cmocka_unit_test(retrieval_answers_with_the_digit),
        cmocka_unit_test(passkeys_are_told_twice),
        cmocka_unit_test(needles_are_told_before_they_are_asked),
        cmocka_unit_test(facts_tell_the_last_place),
        cmocka_unit_test(listops_has_its_value),
        cmocka_unit_test(listops_ends_without_a_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
