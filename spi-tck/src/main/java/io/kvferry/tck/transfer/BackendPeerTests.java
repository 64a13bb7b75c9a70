// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.Optional;
import java.util.Random;

/// Peers and their metadata of [TransferBackendContract].
abstract class BackendPeerTests extends BackendNotificationTests {
    @Test
    @DisplayName("C19 a peer is not found before its metadata is loaded, and then it is")
    void peersAreFoundOnceTheyAreLoaded() {
        if (!remote()) {
            return; // C13 says that there are none
        }
        var route = anyRoute();
        var near = agent();
        var far = agent();
        var remote = far.area(route.remote(), UNIT);
        refuses(
                () -> near.backend.prepare(Optional.of(far.id), remote.whole()),
                "a peer whose metadata nobody loaded",
                ErrorCode.NOT_FOUND);
        near.meet(far);
        far.meet(near);
        var sides = new Sides(near, near.area(route.local(), UNIT), remote, route);
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
    }

    @Test
    @DisplayName(
            "C20b with SELF_MANAGED_METADATA regions that came later are reached without another exchange")
    void selfManagedMetadataNeedsNoOtherExchange() {
        if (!has(Feature.SELF_MANAGED_METADATA) || !remote()) {
            return; // C20 checks that they are refused
        }
        var sides = sides(anyRoute(), UNIT);
        var later = sides.remote().agent().area(sides.route().remote(), UNIT);
        var again = new Sides(sides.near(), sides.local(), later, sides.route());
        var data = random(UNIT, 201);
        fill(source(again), data);
        assertThatCode(() -> done(submit(again, again.local().whole(), again.remote().whole())))
                .as("a transfer with a region that was registered after the exchange")
                .doesNotThrowAnyException();
        holds(target(again), data);
    }

    @Test
    @DisplayName("C44 a peer that dies takes no other with it, and its end is told")
    void peersDieAlone() {
        if (!remote()) {
            return;
        }
        var sides = sides(anyRoute(), UNIT);
        var other = agent();
        var area = other.area(sides.route().remote(), UNIT);
        sides.near().meet(other);
        other.meet(sides.near());
        var good = new Sides(sides.near(), sides.local(), area, sides.route());
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
        close(sides.remote().agent());
        failsWith(
                () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                "a dead peer",
                ErrorCode.PEER_LOST);
        assertThatCode(() -> done(submit(good, good.local().whole(), good.remote().whole())))
                .as("a transfer with a peer that is alive")
                .doesNotThrowAnyException();
        until(
                "SUSPECT or LOST of the dead peer",
                () ->
                        sides.near().states.contains(PeerState.SUSPECT)
                                || sides.near().states.contains(PeerState.LOST));
    }

    @Test
    @DisplayName("C13 an agent has metadata if and only if it can be a peer")
    void metadataIsThereForPeers() {
        var agent = agent();
        assertThat(agent.backend.localMetadata().length > 0).isEqualTo(remote());
    }

    @Test
    @DisplayName(
            "C14 a dropped peer is refused, and dropping it twice or dropping strangers is harmless")
    void droppedPeersAreRefused() {
        var sides = sides(anyRoute(), UNIT);
        sides.near().backend.dropPeer(new PeerId("stranger", 1));
        if (sides.peer().isEmpty()) {
            return;
        }
        var peer = sides.peer().get();
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        sides.near().backend.dropPeer(peer);
        sides.near().backend.dropPeer(peer);
        failsWith(
                () ->
                        sides.near()
                                .backend
                                .submit(
                                        new TransferRequest(
                                                sides.route().operation(), local, remote, soon())),
                "a transfer to a dropped peer",
                ErrorCode.PEER_LOST,
                ErrorCode.NOT_FOUND,
                ErrorCode.STALE_INCARNATION);
        refuses(
                () -> sides.prepareRemote(sides.remote().whole()),
                "a dropped peer",
                ErrorCode.NOT_FOUND,
                ErrorCode.PEER_LOST);
        sides.near().meet(sides.remote().agent());
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
    }

    @Test
    @DisplayName(
            "C15 garbage, cut and damaged metadata is refused with a code, and leaves nothing behind")
    void refusesBadMetadata() {
        if (!remote()) {
            return; // C13 says that there is none
        }
        var sides = sides(anyRoute(), UNIT);
        var stranger = new PeerId("stranger", 7);
        var good = sides.remote().agent().backend.localMetadata();
        refuses(
                () -> sides.near().backend.loadPeer(stranger, random(37, 15)),
                "garbage",
                ErrorCode.CORRUPT,
                ErrorCode.INCOMPATIBLE);
        for (int cut = 0; cut < good.length; cut += Math.max(1, good.length / 20)) {
            int length = cut;
            refuses(
                    () -> sides.near().backend.loadPeer(stranger, Arrays.copyOf(good, length)),
                    "cut to " + cut,
                    ErrorCode.CORRUPT,
                    ErrorCode.INCOMPATIBLE);
        }
        refuses(
                () -> sides.near().backend.prepare(Optional.of(stranger), sides.remote().whole()),
                "a stranger",
                ErrorCode.NOT_FOUND);
        var random = new Random(16);
        for (int i = 0; i < 200; i++) {
            var damaged = good.clone();
            damaged[random.nextInt(good.length)] ^= (byte) (1 << random.nextInt(8));
            try {
                agentWithout()
                        .backend
                        .loadPeer(
                                stranger, damaged); // may be taken: the agent's checksum guards it
            } catch (KvFerryException e) {
                assertThat(e.code()).isIn(ErrorCode.CORRUPT, ErrorCode.INCOMPATIBLE);
            }
        }
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
    }

    private Optional<Agent> spare = Optional.empty();

    private Agent agentWithout() {
        if (spare.isEmpty()) {
            spare = Optional.of(agent());
        }
        return spare.get();
    }

    @Test
    @DisplayName("C20 metadata can be loaded again, and with it regions that came later")
    void metadataCanBeLoadedAgain() {
        var sides = sides(anyRoute(), UNIT);
        if (sides.peer().isEmpty()) {
            return;
        }
        sides.near().meet(sides.remote().agent());
        var later = sides.remote().agent().area(sides.route().remote(), 2 * UNIT);
        if (!has(Feature.SELF_MANAGED_METADATA)) {
            refuses(
                    () -> sides.prepareRemote(later.whole()),
                    "a region that was never announced",
                    ErrorCode.NOT_FOUND);
        }
        sides.near().meet(sides.remote().agent());
        var wide =
                new Sides(
                        sides.near(),
                        sides.near().area(sides.route().local(), 2 * UNIT),
                        later,
                        sides.route());
        done(submit(wide, wide.local().whole(), wide.remote().whole()));
    }

    @Test
    @DisplayName("C39 a peer that died before the first transfer is lost, not waited for")
    void peersThatDiedBeforeAreLost() {
        for (var operation : Operation.values()) {
            var route =
                    claimed().routes().stream()
                            .filter(r ->
                                    r.operation() == operation && r.scope() == Route.Scope.REMOTE)
                            .findFirst();
            if (route.isEmpty()) {
                continue;
            }
            var sides = sides(route.get(), UNIT);
            close(sides.remote().agent());
            failsWith(
                    () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                    "a dead peer",
                    ErrorCode.PEER_LOST);
        }
    }

    @Test
    @DisplayName("C40 a peer that died after a good transfer is lost at the next one")
    void peersThatDiedAfterAreLost() {
        var sides = sides(anyRoute(), UNIT);
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
        if (sides.peer().isEmpty()) {
            return;
        }
        close(sides.remote().agent());
        failsWith(
                () -> submit(sides, sides.local().whole(), sides.remote().whole()),
                "a dead peer",
                ErrorCode.PEER_LOST);
    }

    @Test
    @DisplayName("C41 a peer that started anew is another: old handles are refused, new ones work")
    void restartedPeersAreOthers() {
        var sides = sides(anyRoute(), UNIT);
        if (sides.peer().isEmpty()) {
            return;
        }
        var old = sides.remote().agent();
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var oldMetadata = old.backend.localMetadata();
        done(submit(sides, sides.local().whole(), sides.remote().whole()));
        close(old);
        var anew = new Agent(new PeerId(old.id.agent(), old.id.incarnation() + 1), provider());
        var area = anew.area(sides.route().remote(), UNIT);
        sides.near().meet(anew);
        anew.meet(sides.near());
        failsWith(
                () ->
                        sides.near()
                                .backend
                                .submit(
                                        new TransferRequest(
                                                sides.route().operation(), local, remote, soon())),
                "a handle of an earlier incarnation",
                ErrorCode.STALE_INCARNATION);
        refuses(
                () -> sides.near().backend.loadPeer(old.id, oldMetadata),
                "metadata of an earlier incarnation",
                ErrorCode.STALE_INCARNATION);
        var again = new Sides(sides.near(), sides.local(), area, sides.route());
        var data = random(UNIT, 41);
        fill(source(again), data);
        done(submit(again, again.local().whole(), again.remote().whole()));
        holds(target(again), data);
    }

    @Test
    @DisplayName("C42 a peer that dies after the post makes the transfer end, one way or the other")
    void peersThatDieDuringATransferEndIt() {
        var sides = sides(anyRoute(), 4096 * UNIT);
        if (sides.peer().isEmpty()) {
            return;
        }
        var transfer = submit(sides, sides.local().whole(), sides.remote().whole());
        close(sides.remote().agent());
        assertThat(end(transfer)).isInstanceOf(TransferOutcome.class);
    }
}
