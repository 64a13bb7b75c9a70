// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.bootstrap.EngineEntry;
import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.plane.ReadWindow;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.backend.mooncake.te.WriteGrant.Received;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// One pull on its way: which prefiller workers have not answered yet, and what the others
/// answered.
///
/// Threading: the decode loop.
final class Fetch {
    private final MooncakePlan.Pull pull;
    private final EngineDirectory.Key engine;
    private final String source;
    private final Set<String> outstanding = new HashSet<>();
    private Optional<EngineEntry> prefiller = Optional.empty();
    private final Set<String> reading = new HashSet<>();
    private final List<Runnable> afterwards = new ArrayList<>();
    private Optional<WriteGrant> grant = Optional.empty();

    /// By address of a worker that may write without naming a grant: when its writes have ended.
    private final Map<String, Deadline> writers = new HashMap<>();

    /// The memory that must be filled, where the prefiller does not name the grant.
    private Optional<Extents> unnamed = Optional.empty();

    private Optional<Deadline> bytesBy = Optional.empty();
    private Optional<Deadline> waitsUntil = Optional.empty();
    private Optional<ReadWindow> reads = Optional.empty();
    private Optional<Failure> failure = Optional.empty();
    private boolean revoked;
    private boolean fencing;
    private boolean fenced;
    private boolean ended;

    Fetch(MooncakePlan.Pull pull) {
        this.pull = pull;
        this.engine = new EngineDirectory.Key(pull.bootstrap(), pull.engineId());
        this.source = engine.toString();
    }

    MooncakePlan.Pull pull() {
        return pull;
    }

    EngineDirectory.Key engine() {
        return engine;
    }

    /// Names the prefiller engine.
    String source() {
        return source;
    }

    /// The prefiller as it was listed when its workers were asked.
    Optional<EngineEntry> prefiller() {
        return prefiller;
    }

    void asked(EngineEntry listed, List<String> addresses) {
        prefiller = Optional.of(listed);
        outstanding.addAll(addresses);
    }

    /// Addresses of workers that may still write.
    Set<String> outstanding() {
        return outstanding;
    }

    Optional<WriteGrant> grant() {
        return grant;
    }

    void grant(WriteGrant opened) {
        boolean noted = false;
        try {
            grant = Optional.of(opened);
            noted = true;
        } finally {
            if (!noted) { // nothing else would close it
                opened.close();
            }
        }
    }

    /// Its grant is for any peer.
    ///
    /// @param contents the memory that must be filled
    void grantToAny(WriteGrant opened, Extents contents) {
        grant(opened);
        unnamed = Optional.of(contents);
    }

    /// The state of arrival from a prefiller that names no grant; empty where it names one.
    Optional<Received> received() {
        return unnamed.flatMap(contents -> grant.map(open -> open.received(contents)));
    }

    /// Until when the last bytes may take, all answers being there.
    Deadline bytesBy(Duration patience) {
        var known = bytesBy.orElseGet(() -> Deadline.in(patience));
        bytesBy = Optional.of(known);
        return known;
    }

    Optional<ReadWindow> reads() {
        return reads;
    }

    void reads(ReadWindow opened) {
        reads = Optional.of(opened);
    }

    /// Addresses of workers that are being read from.
    Set<String> reading() {
        return reading;
    }

    /// Ends what may fill the blocks, and returns when nothing does any more; empty where that is
    /// not in our hands.
    Optional<Runnable> window() {
        return grant.<Runnable>map(open -> open::close).or(() -> reads.map(open -> open::close));
    }

    /// A worker that knows no capabilities may write from now on.
    ///
    /// @param longest until its writes have ended, if nothing more is heard of it
    void exposeTo(String address, Duration longest) {
        writers.put(address, Deadline.in(longest));
    }

    /// The request has now reached such a worker, which may write for up to `longest`.
    ///
    /// @param longest as for [#exposeTo]
    void askedFor(String address, Duration longest) {
        writers.computeIfPresent(address, (_, _) -> Deadline.in(longest));
    }

    /// Its workers may write for another `longest`, whatever they have answered.
    void exposeAgain(Duration longest) {
        writers.replaceAll((_, _) -> Deadline.in(longest));
    }

    /// Such a worker has said what became of its part.
    ///
    /// @param end when the writes that it had begun must have ended
    void heardOf(String address, Deadline end) {
        writers.computeIfPresent(address, (_, known) -> known.earlier(end));
    }

    /// The request has not reached such a worker and never will.
    void notHeardBy(String address) {
        writers.remove(address);
    }

    /// Whether a worker without capabilities may still write its blocks, ended or not.
    boolean isWritten() {
        return writers.values().stream().anyMatch(end -> !end.passed());
    }

    /// How long such workers may still write.
    Duration writtenFor() {
        return writers.values().stream()
                .map(Deadline::remaining)
                .max(Comparator.naturalOrder())
                .orElse(Duration.ZERO);
    }

    /// Until when it waits for blocks that are written under an earlier load.
    Deadline waitsUntil(Duration patience) {
        var known = waitsUntil.orElseGet(() -> Deadline.in(patience));
        waitsUntil = Optional.of(known);
        return known;
    }

    void fail(Failure why) {
        failure = failure.or(() -> Optional.of(why));
    }

    Optional<Failure> failure() {
        return failure;
    }

    void revoke() {
        revoked = true;
    }

    boolean revoked() {
        return revoked;
    }

    /// Whether it ends before its blocks are filled.
    boolean isCutShort() {
        return failure.isPresent() || revoked;
    }

    /// Marks its capability as being closed; false when it was before.
    boolean fence() {
        boolean first = !fencing;
        reads.ifPresent(ReadWindow::shut);
        fencing = true; // not where that threw
        return first;
    }

    /// Its capability could not be closed; [#fence] is to be called again.
    void unfence() {
        fencing = false;
    }

    /// Its capability is closed.
    void fenced() {
        fenced = true;
    }

    boolean isFenced() {
        return fenced;
    }

    /// @param action runs when it has ended
    void afterwards(Runnable action) {
        afterwards.add(action);
    }

    void runAfterwards() {
        afterwards.forEach(Runnable::run);
        afterwards.clear();
    }

    /// Marks it as reported; false when it was before.
    boolean end() {
        boolean first = !ended;
        ended = true;
        return first;
    }

    boolean ended() {
        return ended;
    }
}
