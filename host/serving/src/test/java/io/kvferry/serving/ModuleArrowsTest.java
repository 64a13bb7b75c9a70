// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideOutsideOfPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideOutsideOfPackages;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.JavaField;
import com.tngtech.archunit.core.domain.JavaModifier;
import com.tngtech.archunit.core.importer.ClassFileImporter;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// Holds the arrows between the modules, and the few rules of style that class files show, over the
/// main classes of every module that has been compiled.
class ModuleArrowsTest {
    /// The kvferry modules that each module may use, itself left out.
    private static final Map<String, List<String>> ARROWS =
            Map.ofEntries(
                    Map.entry("io.kvferry.spi", List.of()),
                    Map.entry("io.kvferry.tck", List.of("io.kvferry.spi", "io.kvferry.engine")),
                    Map.entry("io.kvferry.toolkit", List.of("io.kvferry.spi")),
                    Map.entry(
                            "io.kvferry.multiconnector",
                            List.of("io.kvferry.spi", "io.kvferry.toolkit")),
                    Map.entry(
                            "io.kvferry.backend.disk",
                            List.of("io.kvferry.spi", "io.kvferry.toolkit")),
                    Map.entry(
                            "io.kvferry.backend.mooncake",
                            List.of("io.kvferry.spi", "io.kvferry.toolkit")),
                    Map.entry(
                            "io.kvferry.backend.nccl",
                            List.of("io.kvferry.spi", "io.kvferry.toolkit")),
                    Map.entry(
                            "io.kvferry.backend.ucx",
                            List.of("io.kvferry.spi", "io.kvferry.toolkit")),
                    Map.entry("io.kvferry.engine", List.of("io.kvferry.spi", "io.kvferry.toolkit")),
                    Map.entry(
                            "io.kvferry.runner",
                            List.of("io.kvferry.spi", "io.kvferry.toolkit", "io.kvferry.engine")),
                    Map.entry(
                            "io.kvferry.serving",
                            List.of(
                                    "io.kvferry.spi",
                                    "io.kvferry.toolkit",
                                    "io.kvferry.engine",
                                    "io.kvferry.multiconnector")),
                    Map.entry(
                            "io.kvferry.demo",
                            List.of(
                                    "io.kvferry.spi",
                                    "io.kvferry.toolkit",
                                    "io.kvferry.engine",
                                    "io.kvferry.serving")));

    /// Modules that must be there, so that an empty import cannot pass.
    private static final List<String> ALWAYS =
            List.of(
                    "io.kvferry.spi",
                    "io.kvferry.toolkit",
                    "io.kvferry.multiconnector",
                    "io.kvferry.engine",
                    "io.kvferry.serving");

    private static JavaClasses classes;

    @BeforeAll
    static void readClassFiles() throws IOException {
        classes =
                new ClassFileImporter()
                        .withImportOption(location -> !location.contains("/jmh_generated/"))
                        .importPaths(compiledModules());
    }

    private static List<Path> compiledModules() throws IOException {
        var root = Path.of("").toAbsolutePath();
        while (!Files.isRegularFile(root.resolve("kvferry"))) {
            root =
                    Objects.requireNonNull(
                            root.getParent(), "no folder above the module holds the launcher");
        }
        var found = new ArrayList<Path>();
        for (var parent : List.of(root, root.resolve("host"), root.resolve("backend-mooncake"))) {
            try (var modules = Files.list(parent)) {
                modules.map(module -> module.resolve("target/classes"))
                        .filter(Files::isDirectory)
                        .forEach(found::add);
            }
        }
        return found;
    }

    @Test
    void modulesUseOnlyWhatTheDesignAllows() {
        for (var module : ALWAYS) {
            assertThat(classes.stream().anyMatch(c -> c.getPackageName().startsWith(module)))
                    .as(module)
                    .isTrue();
        }
        ARROWS.forEach((module, allowed) -> {
            var others = new ArrayList<>(ARROWS.keySet());
            others.add("io.kvferry.benchmarks");
            others.remove(module);
            others.removeAll(allowed);
            noClasses()
                    .that()
                    .resideInAPackage(module + "..")
                    .should()
                    .dependOnClassesThat()
                    .resideInAnyPackage(
                            others.stream().map(other -> other + "..").toArray(String[]::new))
                    .allowEmptyShould(true)
                    .because(module + " may use " + allowed + " only")
                    .check(classes);
        });
    }

    /// Code that engine and plugins share: hashes blocks as connectors must, gives a failed
    /// connector another try as composites do with their children, allocates pages, reads
    /// tokenizers. A copy in the engine would have to stay equal to that of the plugins; in spi it
    /// would be contract.
    @Test
    void theEngineUsesOfTheToolkitOnlyWhatItSharesWithPlugins() {
        var toolkit = "io.kvferry.toolkit.";
        noClasses()
                .that()
                .resideInAPackage("io.kvferry.engine..")
                .should()
                .dependOnClassesThat(
                        resideInAPackage(toolkit + ".")
                                .and(
                                        resideOutsideOfPackages(
                                                toolkit + "hash..",
                                                toolkit + "memory..",
                                                toolkit + "recovery..",
                                                toolkit + "tokenizer..")))
                .check(classes);
    }

    @Test
    void theTransferEngineIsALibraryOfItsOwn() {
        var engine = "io.kvferry.backend.mooncake.te..";
        noClasses()
                .that()
                .resideInAPackage(engine)
                .should()
                .dependOnClassesThat(
                        resideInAPackage("io.kvferry.backend.mooncake..")
                                .and(resideOutsideOfPackage(engine)))
                .check(classes);
        noClasses()
                .that()
                .resideOutsideOfPackage(engine)
                .should()
                .dependOnClassesThat()
                .resideInAPackage("io.kvferry.backend.mooncake.te.internal..")
                .check(classes);
    }

    @Test
    void everyPackageBelongsToAKnownModule() {
        var known = new ArrayList<>(ARROWS.keySet());
        known.addAll(List.of("io.kvferry.benchmarks", "io.kvferry.examples"));
        assertThat(classes.stream().map(JavaClass::getPackageName).distinct())
                .allMatch(name ->
                        known.stream().anyMatch(m -> name.equals(m) || name.startsWith(m + ".")));
    }

    @Test
    void spiNeedsNothingButTheJdkAndJspecify() {
        classes()
                .that()
                .resideInAPackage("io.kvferry.spi..")
                .should()
                .onlyDependOnClassesThat()
                .resideInAnyPackage("io.kvferry.spi..", "java..", "javax..", "org.jspecify..")
                .check(classes);
    }

    @Test
    void guiceStaysInTheCompositionRoot() {
        noClasses()
                .that()
                .resideOutsideOfPackages("io.kvferry.multiconnector..", "io.kvferry.serving..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage("com.google.inject..", "jakarta.inject..")
                .check(classes);
    }

    @Test
    void everyPackageSaysWhatItIs() {
        var described =
                classes.stream()
                        .filter(c -> c.getSimpleName().equals("package-info"))
                        .filter(c -> c.isAnnotatedWith("org.jspecify.annotations.NullMarked"))
                        .map(JavaClass::getPackageName)
                        .toList();
        assertThat(classes.stream().map(JavaClass::getPackageName).distinct())
                .allMatch(described::contains);
    }

    @Test
    void noStateIsSharedThroughStatics() {
        var mutable =
                classes.stream()
                        .flatMap(c -> c.getFields().stream())
                        .filter(f -> f.getModifiers().contains(JavaModifier.STATIC))
                        .filter(f -> !f.getModifiers().contains(JavaModifier.FINAL))
                        .filter(f -> !f.getModifiers().contains(JavaModifier.SYNTHETIC))
                        .map(JavaField::getFullName)
                        .toList();
        assertThat(mutable).isEmpty();
    }

    @Test
    void classesWithoutSubclassesAreFinal() {
        var open =
                classes.stream()
                        .filter(c ->
                                !c.isInterface()
                                        && !c.isEnum()
                                        && !c.isRecord()
                                        && !c.isAnonymousClass())
                        .filter(c -> !c.getModifiers().contains(JavaModifier.FINAL))
                        .filter(c -> !c.getModifiers().contains(JavaModifier.ABSTRACT))
                        .filter(c -> c.getSubclasses().isEmpty())
                        .filter(c -> !c.getPackageName().startsWith("io.kvferry.tck"))
                        // JMH extends the classes of its states.
                        .filter(c -> !c.isAnnotatedWith("org.openjdk.jmh.annotations.State"))
                        .map(JavaClass::getName)
                        .toList();
        assertThat(open).isEmpty();
    }
}
