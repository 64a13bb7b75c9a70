// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static java.lang.constant.ConstantDescs.CD_Object;
import static java.lang.constant.ConstantDescs.CD_void;

import java.io.IOException;
import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassTransform;
import java.lang.classfile.CodeBuilder;
import java.lang.classfile.CodeElement;
import java.lang.classfile.CodeTransform;
import java.lang.classfile.MethodModel;
import java.lang.classfile.MethodTransform;
import java.lang.classfile.Opcode;
import java.lang.constant.ClassDesc;
import java.lang.constant.MethodTypeDesc;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.ProtectionDomain;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Consumer;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.random.RandomGenerator;

/// Refuses threads wherever kvferry starts one, also within an executor of the JDK, as a system
/// does that has no more: platform threads with an OutOfMemoryError, virtual ones with a
/// RejectedExecutionException, as their scheduler does. An agent of the JVM that runs the test.
///
/// Threading: any thread.
public final class RefusedThreads {
    /// Under which the JDK's own class finds who decides.
    private static final String KEY = "kvferry.test.refused-threads";

    private static final String OURS = "io.kvferry.";
    private static final StackWalker STACK = StackWalker.getInstance();

    private RefusedThreads() {}

    /// The flag of a JVM whose threads are to be refused.
    public static String flag(Path folder) throws IOException {
        var manifest = new Manifest();
        var attributes = manifest.getMainAttributes();
        attributes.put(Attributes.Name.MANIFEST_VERSION, "1.0");
        attributes.putValue("Premain-Class", RefusedThreads.class.getName());
        attributes.putValue("Can-Retransform-Classes", "true");
        var jar = folder.resolve("agent.jar");
        new JarOutputStream(Files.newOutputStream(jar), manifest).close();
        return "-javaagent:" + jar;
    }

    /// Called by the JVM.
    public static void premain(String arguments, Instrumentation jvm)
            throws ClassNotFoundException, UnmodifiableClassException {
        jvm.addTransformer(
                new ClassFileTransformer() {
                    @Override
                    public byte[] transform(
                            ClassLoader loader,
                            String name,
                            Class<?> type,
                            ProtectionDomain domain,
                            byte[] bytes) {
                        return name.equals("java/lang/Thread")
                                        || name.equals("java/lang/VirtualThread")
                                ? asking(bytes)
                                : bytes;
                    }
                },
                true);
        jvm.retransformClasses(Thread.class, Class.forName("java.lang.VirtualThread"));
    }

    private static byte[] asking(byte[] bytes) {
        var file = ClassFile.of();
        return file.transformClass(
                file.parse(bytes),
                ClassTransform.transformingMethods(
                        RefusedThreads::starts,
                        MethodTransform.transformingCode(
                                new CodeTransform() {
                                    @Override
                                    public void atStart(CodeBuilder code) {
                                        ask(code);
                                    }

                                    @Override
                                    public void accept(CodeBuilder code, CodeElement element) {
                                        code.with(element);
                                    }
                                })));
    }

    private static boolean starts(MethodModel method) {
        return method.methodName().equalsString("start");
    }

    /// `if (System.getProperties().get(KEY) is there) it.accept(this)`
    private static void ask(CodeBuilder code) {
        var properties = Properties.class.describeConstable().orElseThrow();
        var consumer = Consumer.class.describeConstable().orElseThrow();
        code.invokestatic(
                        ClassDesc.of("java.lang.System"),
                        "getProperties",
                        MethodTypeDesc.of(properties))
                .loadConstant(KEY)
                .invokevirtual(properties, "get", MethodTypeDesc.of(CD_Object, CD_Object))
                .ifThen(
                        Opcode.IFNONNULL,
                        then ->
                                then.invokestatic(
                                                ClassDesc.of("java.lang.System"),
                                                "getProperties",
                                                MethodTypeDesc.of(properties))
                                        .loadConstant(KEY)
                                        .invokevirtual(
                                                properties,
                                                "get",
                                                MethodTypeDesc.of(CD_Object, CD_Object))
                                        .checkcast(consumer)
                                        .aload(0)
                                        .invokeinterface(
                                                consumer,
                                                "accept",
                                                MethodTypeDesc.of(CD_void, CD_Object)));
    }

    /// From now on one thread of `of` is refused.
    ///
    /// @param refused counts them by the place where they were to start
    public static void begin(RandomGenerator random, int of, Map<String, Integer> refused) {
        Consumer<Thread> decides =
                thread -> {
                    var place =
                            STACK.walk(frames ->
                                    frames.filter(frame -> frame.getClassName().startsWith(OURS))
                                            .filter(frame -> !isHere(frame.getClassName()))
                                            .findFirst()
                                            .map(frame ->
                                                    frame.getClassName()
                                                            + "."
                                                            + frame.getMethodName())
                                            .orElse(""));
                    if (place.isEmpty()
                            || place.contains(".testkit.")
                            || thread.getClass().getName().contains("CarrierThread")) {
                        return;
                    }
                    synchronized (refused) {
                        if (random.nextInt(of) != 0) {
                            return;
                        }
                        refused.merge(place, 1, Integer::sum);
                    }
                    if (thread.isVirtual()) {
                        throw new RejectedExecutionException("refused by the test");
                    }
                    throw new OutOfMemoryError("unable to create native thread, says the test");
                };
        System.getProperties().put(KEY, decides);
    }

    private static boolean isHere(String name) {
        return name.startsWith(RefusedThreads.class.getName());
    }

    /// All threads can be had again.
    public static void end() {
        System.getProperties().remove(KEY);
    }

    /// A map for [#begin].
    public static Map<String, Integer> counts() {
        return new TreeMap<>();
    }
}
