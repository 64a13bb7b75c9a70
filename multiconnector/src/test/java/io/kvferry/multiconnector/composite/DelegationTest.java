// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.kv.BlockLease;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.CacheEvent;
import io.kvferry.spi.kv.CacheExchange;
import io.kvferry.spi.kv.CacheExchangeProvider;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferResult;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/// Fails when the contracts grow something that the composites do not pass on to their children.
class DelegationTest {
    /// Interfaces that no half implements: what halves are given, what they answer, and who opens
    /// them.
    private static final Set<Class<?>> NOT_OF_HALVES =
            Set.of(
                    BlockLease.class,
                    BlockPool.class,
                    BlockTable.class,
                    CacheEvent.class,
                    CacheExchange.class,
                    CacheExchangeProvider.class,
                    FinishDecision.class,
                    KvConnectorProvider.class,
                    LookupResult.class,
                    RequestView.class,
                    StepView.class,
                    TransferResult.class,
                    EcConnectorProvider.class,
                    EncoderCache.class);

    @Test
    void implementsEveryOptionalInterfaceOfKvHalves() throws Exception {
        assertThat(interfacesBeside(RequestView.class))
                .as(
                        "a new interface in spi.kv: pass it on in MultiScheduler or MultiWorker, or list it here")
                .allMatch(type ->
                        NOT_OF_HALVES.contains(type)
                                || type.isAssignableFrom(MultiScheduler.class)
                                || type.isAssignableFrom(MultiWorker.class));
    }

    @Test
    void implementsEveryInterfaceOfEncoderCacheHalves() throws Exception {
        assertThat(interfacesBeside(EcSchedulerConnector.class))
                .allMatch(type ->
                        NOT_OF_HALVES.contains(type)
                                || type.isAssignableFrom(MultiEcScheduler.class)
                                || type.isAssignableFrom(MultiEcWorker.class));
    }

    @Test
    void leavesNoMethodToADefaultThatIgnoresTheChildren() {
        for (var half :
                List.of(
                        MultiScheduler.class,
                        MultiWorker.class,
                        MultiEcScheduler.class,
                        MultiEcWorker.class)) {
            assertThat(undelegated(half)).as("methods of %s", half.getSimpleName()).isEmpty();
        }
    }

    @Test
    void passesEveryMethodOfViewsOn() {
        assertThat(undelegated(ChildRequestView.class)).isEmpty();
        assertThat(undelegated(ChildStepView.class)).isEmpty();
        assertThat(undelegated(ChildBlockPool.class)).isEmpty();
    }

    private static List<String> undelegated(Class<?> half) {
        return Arrays.stream(half.getMethods())
                .filter(method -> !Modifier.isStatic(method.getModifiers()))
                .filter(method -> method.getDeclaringClass().isInterface())
                .map(Method::toString)
                .collect(Collectors.toList());
    }

    private static List<Class<?>> interfacesBeside(Class<?> type) throws Exception {
        var names = new ArrayList<String>();
        var folder = type.getPackageName().replace('.', '/');
        var source = Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
        if (Files.isDirectory(source)) {
            list(source.resolve(folder), names);
        } else {
            try (var jar =
                    FileSystems.newFileSystem(URI.create("jar:" + source.toUri()), Map.of())) {
                list(jar.getPath(folder), names);
            }
        }
        var interfaces = new ArrayList<Class<?>>();
        for (var name : names) {
            var found = Class.forName(type.getPackageName() + "." + name);
            if (found.isInterface() && !found.getSimpleName().equals("package-info")) {
                interfaces.add(found);
            }
        }
        assertThat(interfaces).isNotEmpty();
        return interfaces;
    }

    private static void list(Path folder, List<String> names) throws IOException {
        try (var files = Files.list(folder)) {
            files.map(file -> file.getFileName().toString())
                    .filter(name -> name.endsWith(".class") && !name.contains("$"))
                    .forEach(name -> names.add(name.substring(0, name.length() - 6)));
        }
    }
}
