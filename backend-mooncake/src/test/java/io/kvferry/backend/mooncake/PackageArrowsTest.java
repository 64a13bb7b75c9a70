// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// Holds the arrows between the packages of this module and of the transfer engine. What other
/// modules they may use, `ModuleArrowsTest` of `host/serving` holds.
class PackageArrowsTest {
    private static final String ROOT = "io.kvferry.backend.mooncake";

    /// What each package may use, itself left out; the first is the transfer backend. The API of
    /// the transfer engine (`te`) starts its parts and is used by them; between all others every
    /// arrow has one direction.
    private static final Map<String, List<String>> ARROWS =
            Map.ofEntries(
                    Map.entry("", List.of("nativeengine", "rdma", "te")),
                    Map.entry("rdma", List.of()),
                    Map.entry("p2p.wire", List.of()),
                    Map.entry("p2p.bootstrap", List.of()),
                    Map.entry("p2p.common", List.of("p2p.wire")),
                    Map.entry("p2p.plane", List.of("p2p.wire", "te")),
                    Map.entry("p2p.copy", List.of("p2p.plane", "p2p.wire", "te")),
                    Map.entry(
                            "p2p.prefill",
                            List.of("p2p.common", "p2p.copy", "p2p.plane", "p2p.wire", "te")),
                    Map.entry(
                            "p2p.decode",
                            List.of(
                                    "p2p.bootstrap",
                                    "p2p.common",
                                    "p2p.copy",
                                    "p2p.plane",
                                    "p2p.wire",
                                    "te")),
                    Map.entry(
                            "p2p",
                            List.of(
                                    "p2p.bootstrap",
                                    "p2p.common",
                                    "p2p.copy",
                                    "p2p.decode",
                                    "p2p.plane",
                                    "p2p.prefill",
                                    "p2p.wire",
                                    "nativeengine",
                                    "te")),
                    Map.entry("store", List.of()),
                    Map.entry("store.memory", List.of()),
                    Map.entry("store.tier", List.of("store", "store.memory")),
                    Map.entry(
                            "store.embedded.objects",
                            List.of("store", "store.memory", "store.tier")),
                    Map.entry(
                            "store.embedded.offload",
                            List.of("store", "store.embedded.objects", "store.tier")),
                    Map.entry(
                            "store.embedded",
                            List.of(
                                    "store",
                                    "store.embedded.objects",
                                    "store.embedded.offload",
                                    "store.memory",
                                    "store.tier")),
                    Map.entry("store.cluster", List.of("store", "te")),
                    Map.entry(
                            "store.remote",
                            List.of(
                                    "store",
                                    "store.embedded",
                                    "store.embedded.objects",
                                    "store.memory",
                                    "store.tier",
                                    "te")),
                    Map.entry("store.master", List.of("store", "store.embedded", "store.remote")),
                    Map.entry("store.directory", List.of("store", "store.master", "store.remote")),
                    Map.entry(
                            "store.command",
                            List.of(
                                    "store",
                                    "store.cluster",
                                    "store.embedded",
                                    "store.embedded.objects",
                                    "store.master",
                                    "store.remote",
                                    "store.tier",
                                    "rdma")),
                    Map.entry(
                            "storeconnector",
                            List.of(
                                    "store",
                                    "store.cluster",
                                    "store.directory",
                                    "store.embedded",
                                    "store.embedded.objects",
                                    "store.master",
                                    "store.remote",
                                    "storeconnector.keys")),
                    Map.entry("storeconnector.keys", List.of("store")),
                    Map.entry(
                            "te",
                            List.of(
                                    "te.internal",
                                    "te.internal.handshake",
                                    "te.internal.memory",
                                    "te.internal.metadata",
                                    "te.internal.samehost",
                                    "te.internal.tcp",
                                    "te.internal.transfer")),
                    Map.entry("te.internal", List.of("te")),
                    Map.entry("te.internal.memory", List.of("te")),
                    Map.entry("te.internal.samehost", List.of("te", "te.internal.memory")),
                    Map.entry(
                            "te.internal.tcp", List.of("te", "te.internal", "te.internal.memory")),
                    Map.entry(
                            "te.internal.handshake",
                            List.of("te", "te.internal", "te.internal.tcp")),
                    Map.entry(
                            "te.internal.metadata",
                            List.of("te", "te.internal", "te.internal.handshake")),
                    Map.entry(
                            "te.internal.transfer",
                            List.of(
                                    "te",
                                    "te.internal",
                                    "te.internal.handshake",
                                    "te.internal.memory",
                                    "te.internal.metadata",
                                    "te.internal.samehost",
                                    "te.internal.tcp")),
                    Map.entry("nativeengine", List.of("te")));

    private static JavaClasses classes;

    @BeforeAll
    static void readClassFiles() {
        classes =
                new ClassFileImporter()
                        .importPaths(
                                Path.of("target/classes"),
                                Path.of("transfer-engine/target/classes"));
    }

    private static Stream<String> packages() {
        return ARROWS.keySet().stream().sorted();
    }

    @ParameterizedTest
    @MethodSource("packages")
    void usesOnlyWhatItsArrowsAllow(String name) {
        var uses = ARROWS.getOrDefault(name, List.of());
        var allowed = uses.stream().map(PackageArrowsTest::full).toList();
        noClasses()
                .that()
                .resideInAPackage(full(name))
                .should()
                .dependOnClassesThat(
                        resideInAPackage(ROOT + "..")
                                .and(outside(full(name)))
                                .and(outside(allowed.toArray(String[]::new))))
                .because(full(name) + " may use " + uses + " only")
                .check(classes);
    }

    private static DescribedPredicate<JavaClass> outside(String... packages) {
        return DescribedPredicate.describe(
                "outside of " + List.of(packages),
                used -> !List.of(packages).contains(used.getPackageName()));
    }

    @Test
    void namesEveryPackage() {
        assertThat(classes.stream().map(JavaClass::getPackageName).distinct())
                .containsExactlyInAnyOrderElementsOf(
                        ARROWS.keySet().stream().map(PackageArrowsTest::full).toList());
    }

    @Test
    void noArrowsFormACircle() {
        var left = new ArrayList<>(ARROWS.keySet());
        Set<String> done = new HashSet<>(Set.of("te"));
        left.remove("te");
        while (!left.isEmpty()) {
            var next =
                    left.stream()
                            .filter(name -> done.containsAll(ARROWS.get(name)))
                            .collect(Collectors.toSet());
            assertThat(next).as("packages that use none of " + left).isNotEmpty();
            done.addAll(next);
            left.removeAll(next);
        }
    }

    private static String full(String name) {
        return name.isEmpty() ? ROOT : ROOT + "." + name;
    }
}
