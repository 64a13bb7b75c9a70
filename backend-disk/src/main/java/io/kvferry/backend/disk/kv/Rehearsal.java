// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;

/// Warms up the JVM: saves and loads small caches through both halves of the connector before the
/// first request, which would otherwise wait for about 150 classes to be loaded and run interpreted
/// code. Runs once per JVM and class loader, in a temporary folder that is deleted afterwards; it
/// does not touch the connector's folder or statistics. If the process exits meanwhile, a shutdown
/// hook deletes the folder; the folder of a killed process is deleted by a later one.
///
/// Threading: runs on a thread of its own; its methods may be called from any thread.
final class Rehearsal {
    private static final Logger LOG = LoggerFactory.getLogger(Rehearsal.class);

    /// The rehearsal of this JVM.
    private static final AtomicReference<@Nullable Rehearsal> BEGUN = new AtomicReference<>();

    /// Time limit of the rehearsal; the connector opens even if it is exceeded.
    private static final Duration LIMIT = Duration.ofSeconds(30);

    /// Enough for most of what runs for each file to be compiled. With fewer, compilation continues
    /// during the first hand-off and takes its processors.
    private static final int PROMPTS = 24;

    private static final String PREFIX = "kvferry-rehearsal-";

    /// The prefix, and the number that a temporary folder gets.
    private static final Pattern LEFTOVER = Pattern.compile(PREFIX + "\\d+");

    /// Age of a folder that no rehearsal uses any more: many times what one may take.
    private static final Duration LEFTOVER_AGE = Duration.ofMinutes(10);

    /// For the folder to be deleted when the process ends meanwhile.
    private static final Duration EXIT_LIMIT = Duration.ofSeconds(2);

    private final Thread thread;
    private final Thread atExit =
            Thread.ofPlatform().name("disk-rehearsal-end").unstarted(this::endNow);
    private volatile boolean exiting;

    /// Deadline of all waits together: a hanging rehearsal delays opening and closing only until
    /// then.
    private final Deadline end = Deadline.in(LIMIT.plusSeconds(1));

    private Rehearsal(OptionValues options) {
        this.thread =
                Thread.ofPlatform().name("disk-rehearsal").daemon().unstarted(() -> run(options));
    }

    /// Lets the process end when the folder is deleted.
    private void endNow() {
        exiting = true;
        thread.interrupt();
        try {
            thread.join(EXIT_LIMIT);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /// The rehearsal of this JVM, which begins now unless it has begun; empty where the options
    /// want none.
    static Optional<Rehearsal> begin(OptionValues options) {
        if (!options.bool("rehearsal")) {
            return Optional.empty();
        }
        var rehearsal = new Rehearsal(options);
        if (BEGUN.compareAndSet(null, rehearsal)) {
            rehearsal.start();
        }
        return Optional.ofNullable(BEGUN.get());
    }

    private void start() {
        try {
            Runtime.getRuntime().addShutdownHook(atExit);
            thread.start();
        } catch (OutOfMemoryError e) { // no memory for a thread
            leftOut(e);
            forgetExit();
        } catch (IllegalStateException _) { // the process ends
            exiting = true;
        }
    }

    private void leftOut(Throwable e) {
        if (!exiting) {
            LOG.info("no rehearsal, the first hand-off will take longer: {}", e.toString());
        }
    }

    private void forgetExit() {
        try {
            Runtime.getRuntime().removeShutdownHook(atExit);
        } catch (IllegalStateException e) { // the process ends, and the hook waits for this thread
            LOG.debug("the process ends during the rehearsal", e);
        }
    }

    /// Returns at its end, or when it has taken too long.
    void await() {
        try {
            long left = TimeUnit.NANOSECONDS.toMillis(end.remainingNanos());
            if (left > 0) { // 0 would wait without end
                thread.join(left); // returns at once if it never started
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run(OptionValues options) {
        long began = System.nanoTime();
        try {
            var temporary = Path.of(System.getProperty("java.io.tmpdir"));
            handOff(options, temporary, PROMPTS, Deadline.in(LIMIT));
            LOG.debug(
                    "rehearsed in {} ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (IOException | RuntimeException | Error e) { // the connector works without
            leftOut(e);
        } finally {
            forgetExit();
        }
    }

    /// Saves and loads so many prompts in a folder below `parent` that is deleted again.
    ///
    /// @throws KvFerryException when one fails, or time is up
    static void handOff(OptionValues options, Path parent, int prompts, Deadline limit)
            throws IOException, InterruptedException {
        Path folder = Files.createTempDirectory(parent, PREFIX); // mode 0700
        deleteLeftovers(parent, folder);
        try (var engine = new RehearsalEngine(options, folder, limit)) {
            for (int prompt = 0; prompt < prompts; prompt++) {
                engine.save(prompt);
                engine.load(prompt);
            }
        } finally {
            delete(folder);
        }
    }

    /// Deletes what this user's processes left that were killed during a rehearsal.
    ///
    /// @param own a folder of this user, made just now, which stays
    private static void deleteLeftovers(Path parent, Path own) {
        try (var all = Files.newDirectoryStream(parent, Rehearsal::mayBeLeft)) {
            var user = Files.getOwner(own);
            // By the clock of the file system.
            var latest = Files.getLastModifiedTime(own).toInstant().minus(LEFTOVER_AGE);
            for (Path folder : all) {
                if (!folder.equals(own)) {
                    deleteLeftover(folder, user, latest);
                }
            }
        } catch (IOException | RuntimeException e) { // the rehearsal works without
            LOG.debug("folders of earlier rehearsals below {} may be left", parent, e);
        }
    }

    private static boolean mayBeLeft(Path folder) {
        return LEFTOVER.matcher(folder.getFileName().toString()).matches()
                && Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS);
    }

    private static void deleteLeftover(Path folder, UserPrincipal user, Instant latest) {
        try {
            if (Files.getOwner(folder, LinkOption.NOFOLLOW_LINKS).equals(user)
                    && Files.getLastModifiedTime(folder, LinkOption.NOFOLLOW_LINKS)
                            .toInstant()
                            .isBefore(latest)) {
                delete(folder);
            }
        } catch (IOException e) { // another process may be deleting it
            LOG.debug("{} is left", folder, e);
        }
    }

    private static void delete(Path folder) throws IOException {
        try (var all = Files.walk(folder)) {
            for (Path file : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(file);
            }
        } catch (UncheckedIOException e) {
            throw e.getCause();
        }
    }
}
