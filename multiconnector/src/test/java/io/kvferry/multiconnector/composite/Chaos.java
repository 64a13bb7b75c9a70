// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Random;

/// Habits of a connector that behaves at random; probabilities, and the most steps that it is late.
record Chaos(
        double pending,
        double miss,
        double shortHit,
        double sync,
        double fail,
        double never,
        double silent,
        double twice,
        double hold,
        double throwing,
        int late) {
    static final Chaos NONE = new Chaos(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

    static Chaos of(Random random) {
        return new Chaos(
                some(random, 0.3),
                some(random, 0.3),
                some(random, 0.8),
                some(random, 1),
                some(random, 0.6),
                some(random, 0.4),
                random.nextInt(6) == 0 ? 1 : some(random, 0.4), // 1: never, until told otherwise
                some(random, 0.5),
                some(random, 0.5),
                random.nextInt(6) == 0 ? 0.01 : 0,
                random.nextInt(4));
    }

    /// Often none at all.
    private static double some(Random random, double most) {
        return random.nextBoolean() ? 0 : most * random.nextDouble();
    }

    /// Fails half of its loads, which take several steps.
    Chaos failing() {
        return new Chaos(
                pending,
                miss / 4,
                shortHit / 4,
                0,
                0.5,
                never / 4,
                silent,
                twice,
                hold,
                throwing,
                late);
    }

    /// Offers little at first, loads late and seldom fails.
    Chaos takingOver() {
        return new Chaos(
                pending / 4, miss / 4, 0.9, 0, fail / 8, 0, silent, 0.5, hold, throwing, 3);
    }

    /// Has all that it ever saved, and loads it late.
    Chaos steady() {
        return new Chaos(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2);
    }

    /// As [#steady], later still.
    Chaos slow() {
        return new Chaos(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12);
    }

    /// Loads within a step, a few blocks of what it has, and fails often.
    Chaos inStep() {
        return new Chaos(0, 0.1, 1, 1, 0.6, 0, 0, twice, 0, 0, 0);
    }

    /// Leaves half of its loads undone, and answers no revocation.
    Chaos unanswering() {
        return new Chaos(0, 0, 0, 0, 0, 0.5, 1, twice, 0, 0, late);
    }

    /// Throws more often.
    Chaos throwingMore() {
        return new Chaos(
                pending,
                miss,
                shortHit,
                sync,
                fail,
                never,
                silent,
                twice,
                hold,
                throwing > 0 || late > 1 ? 0.02 : 0,
                late);
    }

    /// Answers what it has left open, and throws no more.
    Chaos answering() {
        return new Chaos(pending, miss, shortHit, sync, fail, never, 0, twice, hold, 0, late);
    }

    /// Worker halves hear of new habits in their plans, since they may be in other processes.
    void write(WireWriter out) {
        for (double each :
                new double[] {
                    pending, miss, shortHit, sync, fail, never, silent, twice, hold, throwing
                }) {
            out.f64(each);
        }
        out.i32(late);
    }

    static Chaos read(WireReader in) {
        return new Chaos(
                in.f64(), in.f64(), in.f64(), in.f64(), in.f64(), in.f64(), in.f64(), in.f64(),
                in.f64(), in.f64(), in.i32());
    }

    /// The id of a load that may come after this one: of another attempt, or of a further try of a
    /// composite on the first or second level.
    static TransferId further(TransferId id, Random random) {
        var path = id.child();
        if (path.isEmpty() && random.nextBoolean()) {
            return new TransferId(
                    id.subject(),
                    id.attempt() + 1 + random.nextInt(2),
                    id.direction(),
                    id.job(),
                    path);
        }
        int last = path.length() - 1;
        return id.forChild(
                path.isEmpty()
                        ? (random.nextBoolean() ? "~1" : "~~1")
                        : path.substring(0, last) + (char) (path.charAt(last) + 1));
    }

    void mayThrow(Random random, String where) {
        if (throwing > 0 && random.nextDouble() < throwing) {
            if (random.nextBoolean()) {
                throw new IllegalStateException("injected into " + where);
            }
            throw new NoClassDefFoundError("injected into " + where);
        }
    }
}
