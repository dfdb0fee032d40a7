/*
 * Asks a server of echo.cu or matrix.cu for answers, checks each byte of them, and says how long they took. Runs on the
 * host alone; answers to matrices are known from loops, and are exact, as matrices have small whole numbers.
 *
 * load echo|matrix --port N [--connections N] [--requests N] [--period-us U] [--quit]
 *
 * --period-us: each connection sends its messages at random, so far apart in the mean, however long answers take; the
 * next one at once where it is late. Without it the next one follows an answer.
 *
 * Without --requests (of each connection) it asks until a stretch is over, which it reads as common.h says. --quit:
 * then ends the server.
 */
#include <arpa/inet.h>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <errno.h>
#include <getopt.h>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "requests.h"
#include "server.h"

enum { NR_MESSAGES = 4, SEED = 1 };

static const double connect_s = 60; /* until the server listens */

struct exchange {
    std::vector<unsigned char> message, answer;
};

static struct {
    int port, nr_connections, nr_requests;
    double period_us;
    bool is_matrix, is_quitting;
    std::vector<struct exchange> exchanges;
    std::vector<struct request> requests;
    std::mutex mutex; /* of `requests` */
    std::atomic<bool> is_over;
    std::atomic<int> nr_begun; /* connections whose first answer is there */
} load;

[[noreturn]] static void fail(const std::string &why)
{
    fprintf(stderr, "load: %s\n", why.c_str());
    exit(2);
}

static struct exchange echo_exchange(std::mt19937 &random)
{
    struct exchange exchange;
    exchange.message.resize(ECHO_BYTES);
    for (unsigned char &byte : exchange.message) {
        byte = (unsigned char)(random() % 255); /* so that none begins with SERVER_QUIT */
    }
    exchange.answer = exchange.message;
    return exchange;
}

static struct exchange matrix_exchange(std::mt19937 &random)
{
    const int edge = MATRIX_EDGE;
    std::vector<float> both(2 * edge * edge), product(edge * edge);
    for (float &value : both) {
        value = (float)(random() % 8);
    }
    for (int row = 0; row < edge; row++) {
        for (int along = 0; along < edge; along++) {
            for (int column = 0; column < edge; column++) {
                product[row * edge + column] += both[row * edge + along] * both[(edge + along) * edge + column];
            }
        }
    }
    struct exchange exchange;
    exchange.message.resize(2 * MATRIX_BYTES);
    exchange.answer.resize(MATRIX_BYTES);
    memcpy(exchange.message.data(), both.data(), 2 * MATRIX_BYTES);
    memcpy(exchange.answer.data(), product.data(), MATRIX_BYTES);
    return exchange;
}

static int connect_to_server(void)
{
    struct sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)load.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (double end_s = seconds_now() + connect_s;;) {
        int on = 1, found = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(found, (struct sockaddr *)&address, sizeof(address)) == 0) {
            setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return found;
        }
        close(found);
        if (seconds_now() > end_s) {
            fail("nobody listens at port " + std::to_string(load.port));
        }
        sleep_us(10000);
    }
}

static void send_all(int connection, const std::vector<unsigned char> &bytes)
{
    for (size_t sent = 0; sent < bytes.size();) {
        ssize_t nr = send(connection, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (nr <= 0) {
            fail(std::string("send: ") + strerror(errno));
        }
        sent += nr;
    }
}

static void ask_once(int connection, const struct exchange &exchange)
{
    std::vector<unsigned char> answer(exchange.answer.size());
    double begin_s = seconds_now();
    send_all(connection, exchange.message);
    if (recv(connection, answer.data(), answer.size(), MSG_WAITALL) != (ssize_t)answer.size()) {
        fail("the server hung up");
    }
    double end_s = seconds_now();
    if (answer != exchange.answer) {
        fail("an answer is wrong");
    }
    std::lock_guard<std::mutex> lock(load.mutex);
    load.requests.push_back({begin_s, end_s});
}

static void ask_on(int number)
{
    std::mt19937 random(SEED + number);
    std::exponential_distribution<double> period(1);
    int connection = connect_to_server();
    double due_s = seconds_now();
    for (int nr = 0; !load.is_over && (load.nr_requests == 0 || nr < load.nr_requests); nr++) {
        ask_once(connection, load.exchanges[(number + nr) % NR_MESSAGES]);
        load.nr_begun += nr == 0;
        due_s += load.period_us * period(random) / 1e6;
        sleep_until(due_s);
    }
    close(connection);
}

static void end_server(void)
{
    std::vector<unsigned char> message(load.exchanges[0].message.size(), 0xff);
    int connection = connect_to_server();
    unsigned char nothing;
    send_all(connection, message);
    (void)!recv(connection, &nothing, 1, 0);
    close(connection);
}

static int number_of(const char *text, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < 1 || value > most) {
        fail(std::string(text) + " is not a number from 1 to " + std::to_string(most));
    }
    return (int)value;
}

static void parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'},
        {"connections", required_argument, NULL, 'c'},
        {"requests", required_argument, NULL, 'r'},
        {"period-us", required_argument, NULL, 'u'},
        {"quit", no_argument, NULL, 'q'},
        {"together", no_argument, NULL, 't'},
        {NULL, 0, NULL, 0},
    };
    load.nr_connections = 1;
    for (int key; (key = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (key) {
        case 'p':
            load.port = number_of(optarg, 65535);
            break;
        case 'c':
            load.nr_connections = number_of(optarg, 1024);
            break;
        case 'r':
            load.nr_requests = number_of(optarg, 1 << 30);
            break;
        case 'u':
            load.period_us = atof(optarg);
            break;
        case 'q':
            load.is_quitting = true;
            break;
        case 't':
            load.nr_requests = 0;
            break;
        default:
            exit(2);
        }
    }
    std::string kind = optind + 1 == argc ? argv[optind] : "";
    load.is_matrix = kind == "matrix";
    if (load.port == 0 || (kind != "echo" && kind != "matrix")) {
        fail("load echo|matrix --port N [--connections N] [--requests N] [--period-us U] [--quit]");
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    std::mt19937 random(SEED);
    for (int message = 0; message < NR_MESSAGES; message++) {
        load.exchanges.push_back(load.is_matrix ? matrix_exchange(random) : echo_exchange(random));
    }
    struct stretch stretch = {seconds_now(), 0, 0};
    std::vector<std::thread> threads;
    for (int number = 0; number < load.nr_connections; number++) {
        threads.emplace_back(ask_on, number);
    }
    while (load.nr_requests == 0 && load.nr_begun < load.nr_connections) {
        sleep_us(1000);
    }
    if (load.nr_requests == 0) {
        if (!ask(&stretch)) {
            exit(2);
        }
        wait_for_word();
        load.is_over = true;
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    if (load.nr_requests) {
        stretch.end_s = seconds_now();
    }
    if (load.is_quitting) {
        end_server();
    }
    printf("{\"name\": \"load\", \"unit\": \"requests/s\", \"seconds\": %.9g", stretch.end_s - stretch.begin_s);
    print_requests(load.requests, stretch);
    printf("}\n");
    return 0;
}
