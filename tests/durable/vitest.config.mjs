export default {
    test: {
        include: ["conformance.test.mjs"],
        // The suite gives its own to what waits. Other tests share the machine with it.
        testTimeout: 60_000,
        hookTimeout: 60_000,
    },
};
