// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.transfer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.MemoryRange.DeviceContext;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.PluginChecks;
import io.kvferry.tck.PluginCopy;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Optional;

/// The contract of a transfer backend as JUnit tests. Subclass it and name the provider and the
/// options of an agent; a backend with memory other than host memory and files also overrides
/// [#memory], [#contents] and [#fill].
///
/// ```
/// class TcpBackendTckTest extends TransferBackendContract {
///     @Override
///     protected TransferBackendProvider provider() {
///         return new TcpBackendProvider();
///     }
///
///     @Override
///     protected Map<String, Object> options(String agent) {
///         return Map.of("bind", "127.0.0.1");
///     }
/// }
/// ```
///
/// The numbers are those of the behaviours expected of one backend; what an agent does (discovery,
/// choice of a backend, metadata exchange) is tested where agents live.
public abstract class TransferBackendContract extends BackendFeatureTests {
    @Test
    @DisplayName("C4 options and capabilities are known without opening anything, and true")
    void capabilitiesAreStatic() {
        var provider = provider();
        assertThat(provider.name()).isNotBlank();
        assertThat(provider.spiVersions().accepts(SpiVersion.CURRENT)).isTrue();
        PluginChecks.diagnoses(provider);
        assertThat(provider.options().options())
                .allSatisfy(option -> assertThat(option.description()).isNotBlank());
        assertThat(claimed()).isEqualTo(claimed());
        var open = agent().backend.capabilities();
        assertThat(claimed().routes()).containsAll(open.routes());
        assertThat(claimed().features()).containsAll(open.features());
    }

    @Test
    @DisplayName("C8 every kind of memory that a route names can be registered, and no other")
    void registersWhatRoutesName() {
        var agent = agent();
        for (var kind : MemoryKind.values()) {
            boolean local =
                    claimed().routes().stream()
                            .anyMatch(route -> route.local() == kind || route.remote() == kind);
            if (local) {
                var registration = agent.backend.register(memory(kind, UNIT));
                assertThat(registration.memory().length()).isEqualTo(UNIT);
                registration.close();
                registration.close();
            } else {
                refuses(
                        () -> agent.backend.register(strange(kind)),
                        "registration of " + kind,
                        ErrorCode.UNSUPPORTED);
                refuses(
                        () ->
                                agent.backend.prepare(
                                        Optional.empty(), DescriptorList.of(kind, 0, UNIT, UNIT)),
                        "descriptors of " + kind,
                        ErrorCode.UNSUPPORTED,
                        ErrorCode.NOT_FOUND,
                        ErrorCode.INVALID_REQUEST);
            }
        }
    }

    @Test
    @DisplayName(
            "C70 memory that a backend provides is zeroed whole pages, is reached by nobody before it is registered, and stays until the host frees it")
    void providedMemoryIsRegisteredAndOutlivesTheBackend() {
        long bytes = 4 * UNIT;
        var far = agent();
        var provided = far.backend.provideMemory(bytes);
        if (provided.isEmpty()) {
            return; // then the host takes its own
        }
        try (var memory = provided.get()) {
            var segment = memory.range().segment();
            assertThat(segment.byteSize()).isGreaterThanOrEqualTo(bytes);
            assertThat(segment.address() % UNIT).isZero();
            assertThat(contents(memory.range())).containsOnly(0);
            var near = agent();
            var half = new MemoryRange.Host(segment.asSlice(2 * UNIT, 2 * UNIT));
            var registration = far.backend.register(half);
            near.meet(far);
            for (var operation : Operation.values()) {
                var route =
                        new Route(operation, MemoryKind.HOST, MemoryKind.HOST, Route.Scope.REMOTE);
                if (claimed().routes().contains(route)) {
                    var sides =
                            new Sides(
                                    near,
                                    near.area(MemoryKind.HOST, 2 * UNIT),
                                    new Area(far, half, registration),
                                    route);
                    fill(source(sides), random(2 * UNIT, 70 + operation.ordinal()));
                    done(submit(sides, sides.local().whole(), sides.remote().whole()));
                    holds(target(sides), random(2 * UNIT, 70 + operation.ordinal()));
                    refuses(
                            () ->
                                    near.backend.prepare(
                                            sides.peer(),
                                            DescriptorList.of(
                                                    MemoryKind.HOST, 0, segment.address(), UNIT)),
                            "memory that is provided and not registered",
                            ErrorCode.NOT_FOUND);
                }
            }
            registration.close();
            close(far);
            close(near);
            segment.fill((byte) 7); // the host's, until it frees it
        }
    }

    private MemoryRange strange(MemoryKind kind) {
        return switch (kind) {
            case HOST -> memory(MemoryKind.HOST, UNIT);
            case DEVICE ->
                    new MemoryRange.Device(
                            new DeviceContext(DeviceContext.Api.CUDA, 0, 0), 0x1000, UNIT);
            case FILE -> new MemoryRange.FileRange(Path.of("no-such-file"), 0, UNIT, false);
            case OBJECT -> new MemoryRange.ObjectRange("bucket", "key", 0, UNIT);
            case VOLUME -> new MemoryRange.VolumeRange("volume", 0, UNIT);
        };
    }

    @Test
    @DisplayName("C9 memory is registered and forgotten thousands of times")
    void registersAndForgetsOften() {
        var agent = agent();
        var ranges = new ArrayList<MemoryRange>();
        for (int i = 0; i < 32; i++) {
            ranges.add(memory(anyRoute().local(), UNIT));
        }
        for (int cycle = 0; cycle < 64; cycle++) {
            var open = ranges.stream().map(agent.backend::register).toList();
            open.forEach(registration -> registration.close());
        }
    }

    @Test
    @DisplayName(
            "C10 forgotten memory is not found, here and at the peer, and no longer written to")
    void forgottenMemoryIsSafe() {
        var sides = sides(anyRoute(), 4 * UNIT);
        fill(source(sides), random(4 * UNIT, 10));
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        sides.remote().registration().close();
        var before = contents(target(sides));
        failsWith(
                () ->
                        sides.near()
                                .backend
                                .submit(
                                        new TransferRequest(
                                                sides.route().operation(), local, remote, soon())),
                "a transfer with forgotten memory",
                ErrorCode.CLOSED,
                ErrorCode.NOT_FOUND,
                ErrorCode.PEER_REFUSED,
                ErrorCode.PEER_LOST);
        assertThat(contents(target(sides))).isEqualTo(before);
        sides.local().registration().close();
        refuses(
                () -> sides.prepareLocal(sides.local().whole()),
                "forgotten memory",
                ErrorCode.NOT_FOUND);
    }

    @Test
    @DisplayName("C35 an agent transfers with itself where it claims to")
    void loopbackWorks() {
        claimed().routes().stream()
                .filter(route -> route.scope() == Route.Scope.LOOPBACK)
                .forEach(route -> {
                    var sides = sides(route, 2 * UNIT);
                    var data = random(2 * UNIT, 35);
                    fill(source(sides), data);
                    done(submit(sides, sides.local().whole(), sides.remote().whole()));
                    holds(target(sides), data);
                });
    }

    @Test
    @DisplayName(
            "C45 queries answer for what exists where QUERY is claimed, and are refused where not")
    void queriesAnswerOrAreRefused() {
        var agent = agent();
        if (!has(Feature.QUERY)) {
            refuses(
                    () -> agent.backend.query(strange(MemoryKind.FILE)),
                    "a query",
                    ErrorCode.UNSUPPORTED);
            return;
        }
        claimed().routes().stream()
                .map(Route::remote)
                .distinct()
                .filter(kind -> kind == MemoryKind.FILE)
                .forEach(kind -> {
                    assertThat(agent.backend.query(memory(kind, UNIT))).isPresent();
                    assertThat(
                                    agent.backend.query(
                                            new MemoryRange.FileRange(
                                                    folder.resolve("absent"), 0, 1, false)))
                            .isEmpty();
                });
    }

    @Test
    @DisplayName("C53 estimates, where there are any, are times and grow with the work")
    void estimatesAreTimes() {
        var sides = sides(anyRoute(), UNIT);
        var backend = sides.near().backend;
        var little = backend.estimateNanos(sides.route().operation(), sides.peer(), 1, UNIT);
        var much =
                backend.estimateNanos(sides.route().operation(), sides.peer(), 1000, 1000 * UNIT);
        assertThat(little.isPresent()).isEqualTo(much.isPresent());
        little.ifPresent(
                nanos -> assertThat(nanos).isNotNegative().isLessThanOrEqualTo(much.orElseThrow()));
    }

    @Test
    @DisplayName(
            "C50e closing ends what is in flight with CLOSED, is idempotent, and leaves nothing behind")
    void closingEndsEverything() {
        var sides = sides(anyRoute(), 1024 * UNIT);
        var local = sides.prepareLocal(sides.local().whole());
        var remote = sides.prepareRemote(sides.remote().whole());
        var active = new ArrayList<Transfer>();
        for (int i = 0; i < 8; i++) {
            active.add(
                    sides.near()
                            .backend
                            .submit(
                                    new TransferRequest(
                                            sides.route().operation(), local, remote, soon())));
        }
        close(sides.near());
        sides.near().backend.close();
        for (var transfer : active) {
            assertThat(transfer.quiesced().toCompletableFuture()).as("after close()").isDone();
            switch (transfer.poll().orElseThrow()) {
                case TransferOutcome.Done _ -> {}
                case TransferOutcome.Failed failed ->
                        assertThat(failed.failure().code()).isEqualTo(ErrorCode.CLOSED);
                case TransferOutcome.Cancelled _, TransferOutcome.TimedOut _ ->
                        throw new AssertionError("close() ended a transfer as " + transfer.poll());
            }
        }
        refuses(
                () ->
                        sides.near()
                                .backend
                                .submit(
                                        new TransferRequest(
                                                sides.route().operation(), local, remote, soon())),
                "a submit after close()",
                ErrorCode.CLOSED);
        refuses(
                () -> sides.near().backend.register(memory(sides.route().local(), UNIT)),
                "register() after close()",
                ErrorCode.CLOSED);
    }

    @Test
    @DisplayName("C50f the class loader of a closed backend can be collected")
    void classLoaderUnloads() {
        PluginCopy.mustUnload(TransferBackendProvider.class, provider(), limit(), this::oneLife);
    }

    /// Two agents that know each other, with memory registered.
    private void oneLife(TransferBackendProvider backends) {
        var route = anyRoute();
        var near = agent(backends);
        var far = agent(backends);
        near.area(route.local(), UNIT);
        far.area(route.remote(), UNIT);
        if (route.scope() == Route.Scope.REMOTE) {
            near.meet(far);
            far.meet(near);
        }
        forget(near);
        forget(far);
    }
}
